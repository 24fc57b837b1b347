"""The registries: a name in a setting -> its implementation.

Extending this package takes one new file and one line here; an engine or a learner, two files. A third-party package
declares entry points in the group `starpo.<kind>`, such as `starpo.rewards` (docs/extend.md). Most settings also accept
`module:attribute`. Commands, presets and grids have such groups too (`flows.cli.commands`, `flows.presets`).
"""

from starpo.ragen.core.lookup import Entry, Registry

ENVIRONMENTS = Registry(
    "starpo.environments",
    {
        "sokoban": "starpo.ragen.envs.sokoban.environment:Sokoban",
        "frozen_lake": "starpo.ragen.envs.frozen_lake.environment:FrozenLake",
        "bandit": "starpo.ragen.envs.bandit.environment:Bandit",
        "countdown": "starpo.ragen.envs.countdown.environment:Countdown",
        "metamath_qa": "starpo.ragen.envs.metamath_qa.environment:MetaMathQA",
        "questions": "starpo.ragen.envs.questions.environment:Questions",
        "search_qa": "starpo.ragen.envs.search_qa.environment:SearchQA",
        "gymnasium": "starpo.ragen.envs.suites.gymnasium:GymnasiumTask",
        "reasoning_gym": "starpo.ragen.envs.suites.reasoning_gym:ReasoningGymTask",
        "textarena": "starpo.ragen.envs.suites.textarena:TextArenaGame",
        "verifiers": "starpo.ragen.envs.suites.verifiers:VerifiersTask",
        "openenv": "starpo.ragen.envs.suites.openenv:OpenEnvServer",
        "alfworld": "starpo.ragen.envs.suites.alfworld:AlfworldGame",
        "mixture": "starpo.ragen.envs.mixture.environment:Mixture",
        "game_2048": "starpo.ragen.envs.game_2048.environment:Game2048",
        "rubik": "starpo.ragen.envs.rubik.environment:Rubik",
        "sudoku": "starpo.ragen.envs.sudoku.environment:Sudoku",
        "webshop": "starpo.ragen.envs.webshop.environment:WebShop",
        "program": "starpo.ragen.methods.programs.environment:Program",
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
    "alfworld": "textworld",
}
"""Environments that wrap all tasks of a package -> the package; the extra to install has the environment's name. Their
tasks are named `suite/task`."""

VOCABULARY: dict[str, tuple[dict[str, str], ...]] = {
    "sokoban": ({"observation": "compact", "generator": "distance"},),
    "frozen_lake": ({"observation": "compact"},),
    "bandit": ({"names": "train"}, {"names": "held_out"}, {"names": "phoenix_dragon"}),
}
"""Environments whose words are in the tokenizer of every embedded policy -> the settings in which they occur, as
overrides of the default ones. Only policies that play another environment have its words."""

DEMONSTRATORS = Registry("starpo.demonstrators", {}, takes_targets=True)
"""Functions `(environment, skill, rng) -> Demonstration` of one mediocre decision, in addition to those that
environments declare themselves (`Environment.demonstrator`)."""

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
            "starpo.ragen.methods.judge.component:judge",
            needs="store server",
            options="starpo.ragen.methods.judge.settings:JudgeOptions",
        ),
        "checklist": Entry(
            "starpo.ragen.methods.checklist.component:checklist",
            needs="store server",
            options="starpo.ragen.methods.checklist.settings:ChecklistOptions",
        ),
    },
    takes_targets=True,
)
"""Functions `(turns: pa.Table, RewardConfig) -> float64 [rows]`; a turn's total reward is the sum of those in
`reward.components`. A component that needs the store receives it as third argument."""

SCENES = Registry(
    "starpo.scenes",
    {
        "sokoban": "starpo.ragen.envs.sokoban.scene:scene",
        "frozen_lake": "starpo.ragen.envs.frozen_lake.scene:scene",
    },
)
"""Environment -> `(observation, actions, info) -> Scene`: object positions, for rewards of statements about them."""

_SEARCH = "starpo.ragen.methods.search"

SEARCHES = Registry(
    "starpo.searches",
    {
        "best_of": Entry(f"{_SEARCH}.play:play_searching", "clones", f"{_SEARCH}.settings:BestOfConfig"),
        "beam": Entry(f"{_SEARCH}.play:play_searching", "clones", f"{_SEARCH}.settings:BeamConfig"),
        "lookahead": Entry(f"{_SEARCH}.play:play_searching", "clones", f"{_SEARCH}.settings:LookaheadConfig"),
    },
    takes_targets=True,
)
"""Functions that play episodes as `ragen.agents.rollout.loop.play` does, taking each turn's response from several. They
receive their settings before the deadline, and attach each turn's candidates (`ragen.agents.rollout.siblings`)."""

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

COMPANIONS = Registry(
    "starpo.companions",
    {
        "reference": "starpo.ragen.learning.learners.companions.reference:ReferencePolicy",
        "critic": "starpo.ragen.learning.learners.companions.critic:ValueFunction",
        "prm": "starpo.ragen.methods.implicit_rewards.companion:ImplicitRewards",
    },
    takes_targets=True,
)
"""Classes derived from `ragen.learning.learners.companion.Companion`: models beside the policy that score the response
tokens of an update. Parts of an objective name those that they need."""

_OBJECTIVES = "starpo.ragen.learning.objectives"
_OPTIONS = "starpo.ragen.config.objective_options"

ADVANTAGES = Registry(
    "starpo.advantages",
    {
        "gae": Entry(f"{_OBJECTIVES}.gae:gae", "critic"),
        "bi_level_gae": Entry(f"{_OBJECTIVES}.gae:bi_level_gae", "critic"),
        "turn_gae": Entry(f"{_OBJECTIVES}.gae:turn_gae", "critic", f"{_OPTIONS}:TurnGAEOptions"),
        "hierarchical_gae": Entry(
            "starpo.ragen.methods.segments.estimator:hierarchical_gae",
            "critic spans",
            marks="starpo.ragen.methods.segments.estimator:names_subgoal",
        ),
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
        "istar": Entry(
            "starpo.ragen.methods.implicit_rewards.estimator:istar",
            needs="groups prm",
            options=f"{_OPTIONS}:IStarOptions",
        ),
    },
    takes_targets=True,
    needed=COMPANIONS,
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
    needed=COMPANIONS,
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

TURN_ORDERS = Registry(
    "starpo.turn_orders",
    {
        "together": "starpo.ragen.learning.learners.turn_orders:together",
        "reverse": "starpo.ragen.methods.sequential_turns:last_turn_first",
    },
    takes_targets=True,
)
"""Generators `ragen.learning.learners.turn_orders.MiniBatch -> Steps`: the optimiser steps of a mini-batch."""

PROMPTS = Registry(
    "starpo.prompts",
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
}
"""Code that every objective uses, whatever its settings: loss weights, ratios and KL estimators."""

_CONFIG = "starpo.ragen.config"
_ROLLOUT = "starpo.ragen.agents.rollout"
_LEARNING = "starpo.ragen.learning.learners"

ENGINES = Registry(
    "starpo.engines",
    {
        "torch": Entry(f"{_ROLLOUT}.torch.engine:TorchEngine", options=f"{_CONFIG}.torch_engine:TorchEngineConfig"),
        "vllm": Entry(f"{_ROLLOUT}.vllm.engine:VLLMEngine", options=f"{_CONFIG}.vllm_engine:VLLMEngineConfig"),
        "openai": Entry(
            f"{_ROLLOUT}.openai.engine:OpenAIEngine", options=f"{_CONFIG}.openai_engine:OpenAIEngineConfig"
        ),
    },
)
"""Classes that implement `ragen.agents.rollout.engine.RolloutEngine`, named after their package; options are a subclass
of `ragen.config.engine.EngineConfig`."""

LEARNERS = Registry(
    "starpo.learners",
    {
        "torch": f"{_LEARNING}.torch_learner:TorchLearner",
        "deepspeed": Entry(
            f"{_LEARNING}.deepspeed.learner:DeepSpeedLearner", options=f"{_CONFIG}.deepspeed_learner:DeepSpeedConfig"
        ),
    },
)
"""Classes that implement `ragen.learning.learners.learner.Learner`, named after their package; options are a subclass
of `ragen.config.learner.LearnerConfig`."""

AUDITS = Registry(
    "starpo.audits",
    {
        "duplicates": "starpo.ragen.evidence.audit.responses:duplicate_responses",
        "formats": "starpo.ragen.evidence.audit.responses:invalid_formats",
        "actions": "starpo.ragen.evidence.audit.action_effects:actions_without_effect",
        "rewards": "starpo.ragen.evidence.audit.rewards:rewards_add_up",
        "groups": "starpo.ragen.evidence.audit.groups:groups_by_reason",
        "errors": "starpo.ragen.evidence.audit.errors:error_rows",
        "baselines": "starpo.ragen.evidence.audit.baselines:incomplete_in_baselines",
        "staleness": "starpo.ragen.evidence.audit.stale_use:stale_use",
        "retokenisation": "starpo.ragen.evidence.audit.retokenisation:retokenisation_drift",
        "contamination": "starpo.ragen.evidence.audit.contamination:contaminated_panels",
    },
)
"""Functions `Database -> Finding`, both types of `ragen.evidence.audit`: checks of what a run has stored."""

PLUGGABLE = (
    ENVIRONMENTS, SCENES, DEMONSTRATORS, PROMPTS, SEARCHES, REWARDS, FILTERS, COMPANIONS, ADVANTAGES, SHAPINGS,
    SURROGATES, TURN_ORDERS, ENGINES, LEARNERS, AUDITS,
)  # fmt: skip
"""Registries to which installed packages may add names."""
