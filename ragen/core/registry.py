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
    """`module:attribute` of something built in, and what it cannot do without."""

    needs: str

    def __new__(cls, target: str, needs: str = "") -> "Entry":
        """See `advantage_needs`."""
        entry = super().__new__(cls, target)
        entry.needs = needs
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
    },
    takes_targets=True,
)
"""Classes derived from `ragen.envs.base.Environment`."""

DEMONSTRATORS = Registry("starpo.demonstrators", {}, takes_targets=True)
"""Functions `(environment, skill, rng) -> Demonstration` of one mediocre decision, beside those that environments name
themselves (`Environment.demonstrator`)."""

REWARDS = Registry(
    "starpo.rewards",
    {
        "environment": "starpo.ragen.learning.reward.components:environment_reward",
        "format": "starpo.ragen.learning.reward.components:format_penalty",
        "forfeit": "starpo.ragen.learning.reward.components:forfeited_actions",
        "overlong": "starpo.ragen.learning.reward.components:overlong_penalty",
    },
    takes_targets=True,
)
"""Functions `(turns: pa.Table, RewardConfig) -> float64 [rows]`; a turn's total is the sum of those that
`reward.components` names."""

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

ADVANTAGES = Registry(
    "starpo.advantages",
    {
        "gae": Entry("starpo.ragen.learning.objectives.advantages:gae", needs="critic"),
        "bi_level_gae": Entry("starpo.ragen.learning.objectives.advantages:bi_level_gae", needs="critic"),
        "grpo": Entry("starpo.ragen.learning.objectives.advantages:group_relative", needs="groups"),
        "grpo_batch": Entry("starpo.ragen.learning.objectives.advantages:batch_relative"),
        "rloo": Entry("starpo.ragen.learning.objectives.advantages:leave_one_out", needs="groups"),
        "reinforce": Entry("starpo.ragen.learning.objectives.advantages:raw_return"),
    },
    takes_targets=True,
)
"""Pure functions `ragen.learning.objectives.advantages.AdvantageInputs -> AdvantageEstimate`."""


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


def agent_code(prompt: str) -> dict[str, str]:
    """What the key of whatever an agent plays or imitates holds of its code, by role."""
    return {"prompt": PROMPTS[prompt], "parser": PARSER}


LOSSES: dict[str, str] = {
    "loss": "starpo.ragen.learning.objectives.losses",
    "kl": "starpo.ragen.learning.objectives.kl:KL_ESTIMATORS",
}
"""What an update minimises, and the estimators of the divergence in it."""

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

PLUGGABLE = (ENVIRONMENTS, DEMONSTRATORS, PROMPTS, REWARDS, FILTERS, ADVANTAGES, AUDITS)
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


_NEEDS = ("", "groups", "critic")


def advantage_needs(name: str) -> str:
    """What an estimator cannot do without: 'critic', 'groups' of at least two, or '' for nothing.

    A built-in entry says so, so that nobody has to import it to check settings; any other by an attribute of the
    function, `mine.needs = "critic"`.

    Raises:
        RegistryError: If it cannot be loaded, or says something else.
    """
    target = ADVANTAGES[name]
    needs = target.needs if isinstance(target, Entry) else getattr(load(ADVANTAGES, name), "needs", "")
    if needs not in _NEEDS:
        raise RegistryError(f"estimator '{name}' has needs = {needs!r}; expected one of {', '.join(map(repr, _NEEDS))}")
    return str(needs)


def checked_options(registry: "Registry", name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a thing's own, with defaults filled in.

    It says what they are by an attribute, a settings model: `mine.options = MyOptions`.

    Raises:
        ValueError: If they are wrong, or it has none.
        RegistryError: If it cannot be loaded.
    """
    if not options and name in registry and name not in registry.packages:
        return {}  # built-in ones have settings in the models themselves
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
