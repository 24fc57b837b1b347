"""The registries: a name in a setting -> its implementation.

Extending this package takes one new file and one line here; an engine or a learner, two files. A room declares its
names in its folder (`rooms`), a third-party package as entry points in the group `starpo.<kind>`, such as
`starpo.rewards` (docs/extend.md). Most settings also accept `module:attribute`. Commands, presets and grids have such
groups too (`flows.cli.commands`, `flows.presets`).
"""

from starpo.ragen.core.lookup import Entry, Registry
from starpo.ragen.core.rooms import declared


def _registry(
    kind: str, built_in: dict[str, str], *, takes_targets: bool = False, needed: Registry | None = None
) -> Registry:
    """Return the registry of group `starpo.<kind>`, with the names that rooms declare after those given here."""
    of_rooms = {name: value if isinstance(value, str) else Entry(**value) for name, value in declared(kind).items()}
    return Registry(f"starpo.{kind}", built_in | of_rooms, takes_targets=takes_targets, needed=needed)


ENVIRONMENTS = _registry(
    "environments",
    {
        "sokoban": "starpo.ragen.envs.sokoban.environment:Sokoban",
        "frozen_lake": "starpo.ragen.envs.frozen_lake.environment:FrozenLake",
        "bandit": "starpo.ragen.envs.bandit.environment:Bandit",
        "countdown": "starpo.ragen.envs.countdown.environment:Countdown",
        "metamath_qa": "starpo.ragen.envs.metamath_qa.environment:MetaMathQA",
        "questions": "starpo.ragen.envs.questions.environment:Questions",
        "search_qa": "starpo.ragen.envs.search_qa.environment:SearchQA",
        "mixture": "starpo.ragen.envs.mixture.environment:Mixture",
        "levels": "starpo.ragen.envs.mixture.levels:Levels",
        "game_2048": "starpo.ragen.envs.game_2048.environment:Game2048",
        "rubik": "starpo.ragen.envs.rubik.environment:Rubik",
        "sudoku": "starpo.ragen.envs.sudoku.environment:Sudoku",
        "webshop": "starpo.ragen.envs.webshop.environment:WebShop",
    },
    takes_targets=True,
)
"""Classes derived from `ragen.envs.base.Environment`."""

SUITES: dict[str, str] = declared("suites")
"""Environments that wrap all tasks of a package -> the package; the extra to install has the environment's name. Their
tasks are named `suite/task`."""

VOCABULARY: dict[str, tuple[dict[str, str], ...]] = {
    "sokoban": ({"observation": "compact", "generator": "distance"},),
    "frozen_lake": ({"observation": "compact"},),
    "bandit": ({"names": "train"}, {"names": "held_out"}, {"names": "phoenix_dragon"}),
}
"""Environments whose words are in the tokenizer of every embedded policy -> the settings in which they occur, as
overrides of the default ones. Only policies that play another environment have its words."""

DEMONSTRATORS = _registry("demonstrators", {}, takes_targets=True)
"""Functions `(environment, skill, rng) -> Demonstration` of one mediocre decision, in addition to those that
environments declare themselves (`Environment.demonstrator`)."""

REWARDS = _registry(
    "rewards",
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
    },
    takes_targets=True,
)
"""Functions `(turns: pa.Table, RewardConfig) -> float64 [rows]`; a turn's total reward is the sum of those in
`reward.components`. A component that needs the store receives it as third argument."""

SCORINGS = _registry("scorings", {})
"""Functions `(FileQuestion, answer, options, limit_s) -> Scored` (`ragen.envs.questions`) that score an answer to a
question by more than its text, such as by asking a server; they are called in rollouts alone."""

SCENES = _registry(
    "scenes",
    {
        "sokoban": "starpo.ragen.envs.sokoban.scene:scene",
        "frozen_lake": "starpo.ragen.envs.frozen_lake.scene:scene",
    },
)
"""Environment -> `(observation, actions, info) -> Scene`: object positions, for rewards of statements about them."""

SEARCHES = _registry("searches", {}, takes_targets=True)
"""Functions that play episodes as `ragen.agents.rollout.loop.play` does, taking each turn's response from several. They
receive their settings before the deadline, and attach each turn's candidates (`ragen.agents.rollout.siblings`)."""

CURRICULA = _registry("curricula", {}, takes_targets=True)
"""Functions `(list of ragen.learning.levels.Level, settings) -> shares [levels]`: how often each level is played."""

FILTERS = _registry(
    "filters",
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

COMPANIONS = _registry(
    "companions",
    {
        "reference": "starpo.ragen.learning.learners.companions.reference:ReferencePolicy",
        "critic": "starpo.ragen.learning.learners.companions.critic:ValueFunction",
        "teacher": "starpo.ragen.learning.learners.companions.teacher:Teacher",
    },
    takes_targets=True,
)
"""Classes derived from `ragen.learning.learners.companion.Companion`: models beside the policy that score the response
tokens of an update. Parts of an objective name those that they need."""

_OBJECTIVES = "starpo.ragen.learning.objectives"
_OPTIONS = "starpo.ragen.config.objective_options"

ADVANTAGES = _registry(
    "advantages",
    {
        "gae": Entry(f"{_OBJECTIVES}.gae:gae", "critic"),
        "bi_level_gae": Entry(f"{_OBJECTIVES}.gae:bi_level_gae", "critic"),
        "turn_gae": Entry(f"{_OBJECTIVES}.gae:turn_gae", "critic", f"{_OPTIONS}:TurnGAEOptions"),
        "grpo": Entry(f"{_OBJECTIVES}.advantages:group_relative", "groups"),
        "grpo_batch": Entry(f"{_OBJECTIVES}.advantages:batch_relative"),
        "rloo": Entry(f"{_OBJECTIVES}.advantages:leave_one_out", "groups"),
        "opo": Entry(f"{_OBJECTIVES}.advantages:length_weighted", "groups"),
        "remax": Entry(f"{_OBJECTIVES}.advantages:greedy_baseline", "greedy"),
        "maxrl": Entry(f"{_OBJECTIVES}.likelihood:maxrl", "groups unnormalised"),
        "gdpo": Entry(f"{_OBJECTIVES}.decoupled:gdpo", "groups unnormalised components", f"{_OPTIONS}:GDPOOptions"),
        "reinforce": Entry(f"{_OBJECTIVES}.advantages:raw_return"),
        "reward_to_go": Entry(f"{_OBJECTIVES}.advantages:reward_to_go"),
        "otb": Entry(f"{_OBJECTIVES}.advantages:optimal_token_baseline", "groups probabilities"),
        "gigpo": Entry(f"{_OBJECTIVES}.anchor_states:gigpo", "groups states", f"{_OPTIONS}:GiGPOOptions"),
        "hgpo": Entry(f"{_OBJECTIVES}.anchor_states:hgpo", "groups states", f"{_OPTIONS}:HGPOOptions"),
        "monte_carlo": Entry(
            f"{_OBJECTIVES}.monte_carlo:monte_carlo",
            "credits unnormalised",
            f"{_OPTIONS}:MonteCarloOptions",
            f"{_OBJECTIVES}.monte_carlo:true_advantages",
        ),
    },
    takes_targets=True,
    needed=COMPANIONS,
)
"""Pure functions `ragen.learning.objectives.estimates.AdvantageInputs -> AdvantageEstimate`."""

SHAPINGS = _registry(
    "shapings",
    {
        "zero": f"{_OBJECTIVES}.shaping:zero",
        "asymmetric_clip": f"{_OBJECTIVES}.shaping:asymmetric_clip",
        "by_length": f"{_OBJECTIVES}.shaping:by_length",
        "by_group_std": Entry(f"{_OBJECTIVES}.shaping:by_group_std", "groups"),
        "by_kept_share": f"{_OBJECTIVES}.shaping:by_kept_share",
        "by_root_kept_share": f"{_OBJECTIVES}.shaping:by_root_kept_share",
    },
    takes_targets=True,
    needed=COMPANIONS,
)
"""Pure functions `(advantages_BT, AdvantageInputs) -> advantages_BT`."""

SURROGATES = _registry(
    "surrogates",
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
        "dppo_tv": f"{_OBJECTIVES}.trust_regions:dppo_tv",
        "dppo_kl": f"{_OBJECTIVES}.trust_regions:dppo_kl",
    },
    takes_targets=True,
)
"""Pure functions `ragen.learning.objectives.surrogates.SurrogateInputs -> SurrogateTerms`."""

TURN_ORDERS = _registry(
    "turn_orders", {"together": "starpo.ragen.learning.learners.turn_orders:together"}, takes_targets=True
)
"""Generators `ragen.learning.learners.turn_orders.MiniBatch -> Steps`: the optimiser steps of a mini-batch."""

PROMPTS = _registry(
    "prompts",
    {
        "full": "starpo.ragen.agents.prompting.full_prompt:FullPrompt",
        "state": "starpo.ragen.agents.prompting.prompt:StatePrompt",
        "template": "starpo.ragen.agents.prompting.template_prompt:TemplatePrompt",
    },
    takes_targets=True,
)
"""Classes that implement `ragen.agents.prompting.prompt.Prompt`: the text that the agent receives."""

PARSER = "starpo.ragen.agents.prompting.parser"
"""The module that parses responses into actions; the whole module, since settings select among its functions."""


REASONING_FORMS = "starpo.ragen.agents.prompting.forms"
"""The module that describes forms of reasoning in prompts and enforces them in responses."""


def agent_code(prompt: str, form: str = "free") -> dict[str, str]:
    """Return the agent's code, by role, for the keys of everything it plays or imitates; `form` only if one is set."""
    return {"prompt": PROMPTS[prompt], "parser": PARSER} | ({} if form == "free" else {"form": REASONING_FORMS})


LOSSES: dict[str, str] = {
    "loss": "starpo.ragen.learning.objectives.losses",
    "ratio": "starpo.ragen.learning.objectives.ratios",
    "kl": "starpo.ragen.learning.objectives.kl:KL_ESTIMATORS",
    "importance": "starpo.ragen.learning.objectives.importance:UNITS",
    "entropy_target": "starpo.ragen.learning.objectives.entropy_target:steer",
    "uncertain": "starpo.ragen.learning.objectives.uncertain:most_uncertain",
    "off_policy": "starpo.ragen.learning.objectives.off_policy",
    "distillation": "starpo.ragen.learning.objectives.distillation:distilled",
    "divergence": "starpo.ragen.learning.objectives.divergence:DIVERGENCES",
}
"""Code of objectives that no setting names: loss weights and ratios; the others where they are used."""

_CONFIG = "starpo.ragen.config"
_ROLLOUT = "starpo.ragen.agents.rollout"
_LEARNING = "starpo.ragen.learning.learners"

ENGINES = _registry(
    "engines",
    {
        "torch": Entry(f"{_ROLLOUT}.torch.engine:TorchEngine", options=f"{_CONFIG}.torch_engine:TorchEngineConfig"),
        "vllm": Entry(f"{_ROLLOUT}.vllm.engine:VLLMEngine", options=f"{_CONFIG}.vllm_engine:VLLMEngineConfig"),
        "openai": Entry(
            f"{_ROLLOUT}.openai.engine:OpenAIEngine", options=f"{_CONFIG}.openai_engine:OpenAIEngineConfig"
        ),
        "scripted": Entry(
            f"{_ROLLOUT}.scripted:ScriptedEngine", options=f"{_CONFIG}.scripted_engine:ScriptedEngineConfig"
        ),
    },
)
"""Classes that implement `ragen.agents.rollout.engine.RolloutEngine`, named after their package; options are a subclass
of `ragen.config.engine.EngineConfig`."""

LEARNERS = _registry(
    "learners",
    {
        "torch": f"{_LEARNING}.torch_learner:TorchLearner",
        "deepspeed": Entry(
            f"{_LEARNING}.deepspeed.learner:DeepSpeedLearner", options=f"{_CONFIG}.deepspeed_learner:DeepSpeedConfig"
        ),
    },
)
"""Classes that implement `ragen.learning.learners.learner.Learner`, named after their package; options are a subclass
of `ragen.config.learner.LearnerConfig`."""

AUDITS = _registry("audits", {})
"""Functions `Database -> Finding`, both types of `ragen.evidence.audit`: checks of what a run has stored."""

PLUGGABLE = (
    ENVIRONMENTS, SCORINGS, SCENES, DEMONSTRATORS, PROMPTS, SEARCHES, REWARDS, CURRICULA, FILTERS, COMPANIONS,
    ADVANTAGES, SHAPINGS, SURROGATES, TURN_ORDERS, ENGINES, LEARNERS, AUDITS,
)  # fmt: skip
"""Registries to which installed packages may add names."""
