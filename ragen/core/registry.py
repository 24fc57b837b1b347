"""Registries: a name in a setting -> the one place that implements it, imported only when used.

    built-in lines + entry points of installed packages -> Registry: name -> "module:attribute" -> load -> the thing

Listing the names costs no import, so settings can be validated and shown without torch. Adding something to this
package is one new file and one line here. A package of one's own declares entry points in the group `starpo.<kind>`,
such as `starpo.rewards` (docs/extend.md). Most may also be named as `module:attribute`.
"""

import re
from collections.abc import Mapping
from importlib import import_module, metadata
from typing import Any

from pydantic import AfterValidator, ValidationError, WithJsonSchema

from starpo.ragen.core.errors import ConfigError, RegistryError, StarPOError
from starpo.ragen.core.faults import describe_fault

TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
"""`module:attribute`."""


_INSTALLED = metadata.entry_points()


class Entry(str):
    """`module:attribute` of something built in, and what is known of it without importing it.

    Attributes:
        needs: What it cannot do without, as words (`needs`).
        options: `module:attribute` of the settings model of its own; '': it has none.
    """

    needs: str
    options: str

    def __new__(cls, target: str, needs: str = "", options: str = "") -> "Entry":
        """A target that knows more."""
        entry = super().__new__(cls, target)
        entry.needs, entry.options = needs, options
        return entry


class Registry(dict[str, str]):
    """`name -> "module:attribute"`: built-in names, and those of installed packages.

    Attributes:
        group: Entry points of this group are in it.
        packages: Name -> the package that declares it, for those that are not built in.
        faults: Name -> why nobody can use it: two packages declare it.
        shadowed: Built-in name -> which package declares it too. The built-in one stays, but no run should begin with
            a name that somebody may take for the other (`ragen.readiness`).
        takes_targets: May a setting name `module:attribute` itself?
    """

    def __init__(self, group: str, built_in: Mapping[str, str], *, takes_targets: bool = False) -> None:
        super().__init__(built_in)
        self.group, self.takes_targets = group, takes_targets
        self.packages: dict[str, str] = {}
        self.faults: dict[str, str] = {}
        self.shadowed: dict[str, str] = {}
        for point in sorted(_INSTALLED.select(group=group), key=lambda point: (point.name, point.value)):
            self._add(point)

    def __missing__(self, name: str) -> str:
        """A target stands for itself."""
        if self.takes_targets and TARGET.fullmatch(name):
            return name
        raise KeyError(name)

    def _add(self, point: metadata.EntryPoint) -> None:
        package = f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
        owner = self.packages.get(point.name)
        if point.name in self and owner != package:
            (self.faults if owner else self.shadowed)[point.name] = (
                f"'{point.name}' is {f'a name of {owner}' if owner else 'a built-in name'} and one of {package} (entry "
                f"points of group {self.group}): rename or uninstall one, since a name must stand for one thing"
            )
            return
        self[point.name] = point.value
        self.packages[point.name] = package


ENVIRONMENTS = Registry(
    "starpo.environments",
    {
        "sokoban": "starpo.ragen.envs.sokoban.environment:Sokoban",
        "frozen_lake": "starpo.ragen.envs.frozen_lake.environment:FrozenLake",
        "bandit": "starpo.ragen.envs.bandit.environment:Bandit",
        "gymnasium": "starpo.ragen.envs.suites.gymnasium:GymnasiumTask",
        "reasoning_gym": "starpo.ragen.envs.suites.reasoning_gym:ReasoningGymTask",
        "textarena": "starpo.ragen.envs.suites.textarena:TextArenaGame",
        "verifiers": "starpo.ragen.envs.suites.verifiers:VerifiersTask",
        "openenv": "starpo.ragen.envs.suites.openenv:OpenEnvServer",
    },
    takes_targets=True,
)
"""Classes derived from `ragen.envs.base.Environment`."""

SUITES: dict[str, str] = {
    "gymnasium": "gymnasium",
    "reasoning_gym": "reasoning-gym",
    "textarena": "textarena",
    "verifiers": "verifiers",
    "openenv": "openenv-core",
}
"""Environments that stand for all tasks of a package -> the package, which is the extra of the same name. Their tasks
are named as `suite/task`."""

DEMONSTRATORS = Registry("starpo.demonstrators", {}, takes_targets=True)
"""Functions `(environment, skill, rng) -> Demonstration` of one mediocre decision, beside those that environments name
themselves (`Environment.demonstrator`)."""

REWARDS = Registry(
    "starpo.rewards",
    {
        "environment": Entry("starpo.ragen.learning.reward.components:environment_reward"),
        "format": Entry("starpo.ragen.learning.reward.components:format_penalty"),
        "forfeit": Entry("starpo.ragen.learning.reward.components:forfeited_actions"),
        "overlong": Entry(
            "starpo.ragen.learning.reward.components:overlong_penalty",
            options="starpo.ragen.config.reward_components:OverlongOptions",
        ),
        "grounding": Entry(
            "starpo.ragen.learning.reward.statements:grounding",
            needs="scene",
            options="starpo.ragen.config.reward_components:StatementOptions",
        ),
        "world_model": Entry(
            "starpo.ragen.learning.reward.statements:world_model",
            needs="scene",
            options="starpo.ragen.config.reward_components:StatementOptions",
        ),
        "agreement": Entry(
            "starpo.ragen.learning.reward.reasoning:agreement",
            needs="scene",
            options="starpo.ragen.config.reward_components:AgreementOptions",
        ),
        "reasoning_format": Entry(
            "starpo.ragen.learning.reward.reasoning:reasoning_format",
            options="starpo.ragen.config.reward_components:ReasoningFormatOptions",
        ),
        "judge": Entry(
            "starpo.ragen.learning.reward.judge:judge",
            needs="store",
            options="starpo.ragen.config.reward_components:JudgeOptions",
        ),
        "checklist": Entry(
            "starpo.ragen.learning.reward.judge:checklist",
            needs="store",
            options="starpo.ragen.config.reward_components:ChecklistOptions",
        ),
    },
    takes_targets=True,
)
"""Functions `(turns: pa.Table, RewardConfig) -> float64 [rows]`; a turn's total is the sum of those that
`reward.components` names. One that needs the store is called with it as third argument."""

SCENES: dict[str, str] = {
    "sokoban": "starpo.ragen.envs.sokoban.scene:scene",
    "frozen_lake": "starpo.ragen.envs.frozen_lake.scene:scene",
}
"""Environment -> `(observation, actions, info) -> Scene`: where things are, for the rewards of what is said of it."""

FILTERS = Registry(
    "starpo.filters",
    {
        "none": "starpo.ragen.learning.filter.strategies:keep_all",
        "top_fraction": "starpo.ragen.learning.filter.strategies:top_fraction",
        "top_k": "starpo.ragen.learning.filter.strategies:top_k",
        "top_p_linear": "starpo.ragen.learning.filter.strategies:top_p_linear",
        "top_p_softmax": "starpo.ragen.learning.filter.strategies:top_p_softmax",
        "min_p": "starpo.ragen.learning.filter.strategies:min_p",
    },
    takes_targets=True,
)
"""Functions `(scores: float64 [groups], FilterConfig) -> bool [groups]`; a larger score is better."""

_OBJECTIVES = "starpo.ragen.learning.objectives"
_OPTIONS = "starpo.ragen.config.objective_options"

ADVANTAGES = Registry(
    "starpo.advantages",
    {
        "gae": Entry(f"{_OBJECTIVES}.gae:gae", "critic"),
        "bi_level_gae": Entry(f"{_OBJECTIVES}.gae:bi_level_gae", "critic"),
        "turn_gae": Entry(f"{_OBJECTIVES}.gae:turn_gae", "critic", f"{_OPTIONS}:TurnGAEOptions"),
        "hierarchical_gae": Entry(f"{_OBJECTIVES}.gae:hierarchical_gae", "critic spans"),
        "grpo": Entry(f"{_OBJECTIVES}.advantages:group_relative", "groups"),
        "grpo_batch": Entry(f"{_OBJECTIVES}.advantages:batch_relative"),
        "rloo": Entry(f"{_OBJECTIVES}.advantages:leave_one_out", "groups"),
        "opo": Entry(f"{_OBJECTIVES}.advantages:length_weighted", "groups"),
        "remax": Entry(f"{_OBJECTIVES}.advantages:greedy_baseline", "greedy"),
        "reinforce": Entry(f"{_OBJECTIVES}.advantages:raw_return"),
        "reward_to_go": Entry(f"{_OBJECTIVES}.advantages:reward_to_go"),
        "otb": Entry(f"{_OBJECTIVES}.advantages:optimal_token_baseline", "groups probabilities"),
        "gigpo": Entry(f"{_OBJECTIVES}.anchor_states:gigpo", "groups states", f"{_OPTIONS}:GiGPOOptions"),
        "hgpo": Entry(f"{_OBJECTIVES}.anchor_states:hgpo", "groups states", f"{_OPTIONS}:HGPOOptions"),
    },
    takes_targets=True,
)
"""Pure functions `ragen.learning.objectives.estimates.AdvantageInputs -> AdvantageEstimate`."""

SHAPINGS = Registry(
    "starpo.shapings",
    {
        "zero": f"{_OBJECTIVES}.shaping:zero",
        "asymmetric_clip": f"{_OBJECTIVES}.shaping:asymmetric_clip",
        "by_length": f"{_OBJECTIVES}.shaping:by_length",
        "by_group_std": Entry(f"{_OBJECTIVES}.shaping:by_group_std", "groups"),
        "by_kept_share": f"{_OBJECTIVES}.shaping:by_kept_share",
        "by_root_kept_share": f"{_OBJECTIVES}.shaping:by_root_kept_share",
    },
    takes_targets=True,
)
"""Pure functions `(advantages_BT, AdvantageInputs) -> advantages_BT`."""

SURROGATES = Registry(
    "starpo.surrogates",
    {
        "ppo": f"{_OBJECTIVES}.surrogates:ppo",
        "loop": f"{_OBJECTIVES}.surrogates:loop",
        "dual_clip": Entry(f"{_OBJECTIVES}.surrogates:dual_clip", options=f"{_OPTIONS}:DualClipOptions"),
        "unclipped": f"{_OBJECTIVES}.surrogates:unclipped",
        "cispo": f"{_OBJECTIVES}.surrogates:cispo",
        "sapo": Entry(f"{_OBJECTIVES}.surrogates:sapo", options=f"{_OPTIONS}:SAPOOptions"),
        "gmpo": Entry(f"{_OBJECTIVES}.surrogates:gmpo", options=f"{_OPTIONS}:GMPOOptions"),
        "clip_cov": Entry(f"{_OBJECTIVES}.surrogates:clip_cov", "covariances", f"{_OPTIONS}:ClipCovOptions"),
        "kl_cov": Entry(f"{_OBJECTIVES}.surrogates:kl_cov", "covariances", f"{_OPTIONS}:KLCovOptions"),
    },
    takes_targets=True,
)
"""Pure functions `ragen.learning.objectives.surrogates.SurrogateInputs -> SurrogateTerms`."""


PROMPTS = Registry(
    "starpo.prompts",
    {
        "full": "starpo.ragen.agents.prompting.prompt:FullPrompt",
        "state": "starpo.ragen.agents.prompting.prompt:StatePrompt",
    },
    takes_targets=True,
)
"""Classes of the form of `ragen.agents.prompting.prompt.Prompt`: what the agent is told."""

PARSER = "starpo.ragen.agents.prompting.parser"
"""What turns responses into actions: a whole module, since settings choose among what it does."""


REASONING_FORMS = "starpo.ragen.agents.prompting.forms"
"""What tells forms of reasoning and holds responses to them."""


def agent_code(prompt: str, form: str = "free") -> dict[str, str]:
    """What the key of whatever an agent plays or imitates holds of its code, by role; of forms where one is set."""
    return {"prompt": PROMPTS[prompt], "parser": PARSER} | ({} if form == "free" else {"form": REASONING_FORMS})


LOSSES: dict[str, str] = {
    "loss": "starpo.ragen.learning.objectives.losses",
    "ratio": "starpo.ragen.learning.objectives.ratios",
    "kl": "starpo.ragen.learning.objectives.kl:KL_ESTIMATORS",
}
"""What every objective is made of, whatever it names: weights and ratios, and the estimators of the divergence."""

ENGINES: dict[str, str] = {
    "torch": "starpo.ragen.agents.rollout.torch_engine:TorchEngine",
    "vllm": "starpo.ragen.agents.rollout.vllm_engine:VLLMEngine",
    "openai": "starpo.ragen.agents.rollout.openai_engine:OpenAIEngine",
}
"""Classes that implement `ragen.agents.rollout.engine.RolloutEngine`."""

LEARNERS: dict[str, str] = {
    "torch": "starpo.ragen.learning.learners.torch_learner:TorchLearner",
    "deepspeed": "starpo.ragen.learning.learners.deepspeed_learner:DeepSpeedLearner",
}
"""Classes that implement `ragen.learning.learners.learner.Learner`."""

AUDITS = Registry(
    "starpo.audits",
    {
        "duplicates": "starpo.ragen.evidence.audit.responses:duplicate_responses",
        "formats": "starpo.ragen.evidence.audit.responses:invalid_formats",
        "actions": "starpo.ragen.evidence.audit.action_effects:actions_without_effect",
        "rewards": "starpo.ragen.evidence.audit.rewards:rewards_add_up",
        "reasoning": "starpo.ragen.evidence.audit.reasoning:reasoning_against_board",
        "groups": "starpo.ragen.evidence.audit.groups:groups_by_reason",
        "outliers": "starpo.ragen.evidence.audit.outliers:longest_and_oddest",
        "errors": "starpo.ragen.evidence.audit.errors:error_rows",
    },
)
"""Functions `Database -> Finding`, both of `ragen.evidence.audit`: questions to what a run has stored."""

PLUGGABLE = (ENVIRONMENTS, DEMONSTRATORS, PROMPTS, REWARDS, FILTERS, ADVANTAGES, SHAPINGS, SURROGATES, AUDITS)
"""Registries to which installed packages may add names."""


def resolve(target: str) -> Any:
    """Import `module:attribute`.

    Raises:
        RegistryError: If it cannot be imported; the message names the file, the line and the fault.
    """
    return _resolve(target, target)


def load(registry: Mapping[str, str], name: str) -> Any:
    """Import what `name` stands for.

    Raises:
        ConfigError: If the registry has no such name; the message lists those it has.
        RegistryError: If what it stands for cannot be imported; the message names the file, the line and the fault.
    """
    return _resolve(name, registry[known(registry, name)])


NEEDS = frozenset({"critic", "groups", "states", "greedy", "spans", "probabilities", "covariances", "scene", "store"})
"""What a part of an objective may not be able to do without: a value function; groups of at least two; the states of
the environment; a greedy rollout of each group; which tokens are reasoning and which the answer; the probabilities of
tokens; covariances over a mini-batch. And a reward component: an environment in `SCENES`; the store that the turns are
in, as its third argument."""


def needs(registry: "Registry", name: str) -> frozenset[str]:
    """What a part of an objective, or a reward component, cannot do without, of `NEEDS`.

    A built-in entry says so, so that nobody has to import it to check settings; any other by an attribute of the
    function, `mine.needs = "critic"`, several words with spaces between.

    Raises:
        RegistryError: If it cannot be loaded, or says something else.
    """
    if name in registry and name not in registry.packages:
        return frozenset(getattr(registry[name], "needs", "").split())
    said = getattr(load(registry, name), "needs", "")
    if not isinstance(said, str) or not NEEDS.issuperset(said.split()):
        raise RegistryError(f"'{name}' has needs = {said!r}; expected words of {', '.join(sorted(NEEDS))}")
    return frozenset(said.split())


def checked_options(registry: "Registry", name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a thing's own, with defaults filled in.

    It says what they are by an attribute, a settings model: `mine.options = MyOptions`; a built-in entry names it.

    Raises:
        ValueError: If they are wrong, or it has none.
        RegistryError: If it cannot be loaded.
    """
    if name in registry and name not in registry.packages:
        target = getattr(registry[name], "options", "")
        model = resolve(target) if target else None
    else:
        model = getattr(load(registry, name), "options", None)
    if model is None:
        if options:
            raise ValueError(f"'{name}' takes no options, found {', '.join(sorted(options))}")
        return {}
    try:
        checked: dict[str, Any] = model.model_validate(dict(options)).model_dump(mode="json")
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise ValueError(f"options of '{name}': {'; '.join(faults)}") from error
    return checked


def known(registry: Mapping[str, str], name: str) -> str:
    """Return `name` if the registry has it, or if it is a target that can be loaded.

    Raises:
        ConfigError: Otherwise; the message lists the names there are.
        RegistryError: If it is a target that cannot be imported.
    """
    fault = registry.faults.get(name) if isinstance(registry, Registry) else None
    if fault:
        raise ConfigError(fault)
    if name in registry:
        return name
    if isinstance(registry, Registry) and registry.takes_targets and ":" in name:
        if not TARGET.fullmatch(name):
            raise ConfigError(f"'{name}' is no module:attribute, such as my_rewards:bonus")
        _resolve(name, name)
        return name
    hint = " (or module:attribute)" if isinstance(registry, Registry) and registry.takes_targets else ""
    raise ConfigError(f"'{name}' is not known here; known: {', '.join(sorted(registry))}{hint}")


def registered(registry: Mapping[str, str]) -> tuple[AfterValidator, WithJsonSchema]:
    """Annotations for a string setting that must name an entry: `Annotated[str, *registered(FILTERS)]`."""
    schema: dict[str, Any] = {"type": "string", "enum": sorted(registry)}
    if isinstance(registry, Registry) and registry.takes_targets:
        target = {"type": "string", "pattern": f"^{TARGET.pattern}$", "title": "module:attribute"}
        schema = {"anyOf": [schema, target]} if registry else target
    return AfterValidator(lambda name: known(registry, name)), WithJsonSchema(schema)


def _resolve(name: str, target: str) -> Any:
    module, attribute = target.split(":")
    try:
        return getattr(import_module(module), attribute)
    except StarPOError:
        raise
    except Exception as error:
        place = "named as module:attribute" if name == target else f"registered as {target}"
        advice = "Mend that file, or uninstall its package"
        if isinstance(error, ModuleNotFoundError) and module.startswith(str(error.name)):
            advice = "Put its folder into PYTHONPATH where stages run, or install its package"
        raise RegistryError(
            f"'{name}' ({place}) cannot be loaded: {describe_fault(error, module)}. {advice}"
        ) from error
