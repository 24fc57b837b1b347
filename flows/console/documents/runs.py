"""Documents on runs: lists, one run, its iterations and trajectories."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from starpo.flows.console.documents.document import JsonDocument

State = Literal["running", "completed", "failed", "cancelled", "interrupted", "unknown", "damaged"]
"""interrupted: its process has ended without saying so. unknown: nothing is recorded. damaged: `fault` says why."""


class EvaluationPoint(JsonDocument):
    """Success on the panel of the training environment, with its 95% interval over initial states."""

    iteration: int
    """Iterations done before: the number of the checkpoint."""
    success: float
    """Share of the episodes that reached the goal."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end."""


class RunFacts(JsonDocument):
    """A run at a glance."""

    run: str
    """Its name."""
    flow: str | None
    """What made it: starpo (training), replay, import, evaluation."""
    preset: str | None
    """Preset or file that its settings are named after."""
    environment: str | None
    """Type of the environment that it trains on."""
    state: State
    """Where it stands."""
    activity: str | None
    """What a running one does now."""
    failure: str
    """Why it failed; empty otherwise."""
    seconds_left: float | None
    """Estimate for a running one."""
    hours: float | None
    """Duration so far."""
    iterations: int | None
    """Iterations with a rollout or an update."""
    updates: int | None
    """Updates done."""
    planned: int | None
    """Iterations that its settings ask for."""
    warning: str
    """Why it learns nothing at present; empty if it learns."""
    num_evaluations: int | None
    """Evaluations on its panel."""
    success_first: float | None
    """Success at the first of them."""
    success_last: float | None
    """Success at the last of them."""
    curve: list[EvaluationPoint]
    """All of them."""
    created: str | None
    """When it began, UTC."""
    store: str
    """Address of the store, without secrets."""
    fault: str | None
    """What is damaged; null if it can be read."""


class SettingChange(JsonDocument):
    """A setting that differs."""

    was: Any
    """Its value in the run before."""
    now: Any = Field(alias="is")
    """Its value here."""


class BranchFacts(RunFacts):
    """A run, and the runs that branch from it."""

    start: int | None = Field(alias="from")
    """Checkpoint that it continues; null for a root."""
    changed: dict[str, SettingChange] | None
    """Setting -> its values; null if one of the two has settings of another release."""
    forks: "list[BranchFacts]"
    """Runs that branch from it."""


class TokenThroughput(JsonDocument):
    """Tokens of one kind of work."""

    tokens: int
    """Number of tokens."""
    seconds: float
    """Seconds of the stages."""
    tokens_per_s: float | None
    """Tokens in a second of the stage; null without any."""


class RunCost(JsonDocument):
    """What the run itself computed."""

    machine_seconds: dict[str, float]
    """Machine -> seconds in stages."""
    played: TokenThroughput
    """Tokens of rollouts."""
    trained: TokenThroughput
    """Tokens of updates."""
    reused_seconds: float
    """Seconds of stages that other runs had computed before."""
    num_reused_stages: int
    """Number of these stages."""


class RunDetails(RunFacts):
    """A run with its settings and one row for each iteration."""

    config: dict[str, Any]
    """Its settings, complete."""
    parameters: dict[str, Any]
    """Other arguments of its flow, such as a replay's base run."""
    per_iteration: list[dict[str, int | float | None]]
    """`iteration`, and success, return, reward_std (within groups), kept (groups), entropy, length, format,
    gradient_norm, panel; null where it was not measured."""
    by_reuse: list[dict[str, int | float | None]]
    """Means over updates by how many earlier ones had used their rollout."""
    verdict: Literal["healthy", "warning", "stalled", "collapsing", "collapsed"]
    """As `starpo diagnose` says, from stored metrics alone."""
    cost: RunCost
    """Work, tokens and what was reused."""
    unreplayable: list[str]
    """Why episodes of its environments cannot be verified; empty if they can."""


class StageTime(JsonDocument):
    """Where time went: a stage, or a part of one (`update: train`)."""

    stage: str
    """Name of the stage."""
    times: int
    """How often it was carried out."""
    seconds: float
    """Median duration."""
    total: float
    """All of them."""
    share: float
    """Of the time of all stages and between them."""


class ArtifactRow(JsonDocument):
    """An artifact of an iteration."""

    stage: str
    """Stage that recorded it."""
    kind: str
    """Its kind, such as turns."""
    key: str
    """Its key: `starpo lineage KIND/KEY`."""
    rows: int | None
    """Rows of a dataset; null for a checkpoint."""


class MetricValue(JsonDocument):
    """A metric; its meaning is in `starpo sql RUN "select * from metrics"` and in the glossary."""

    name: str
    """Its name."""
    value: float | None
    """Its value; null if it is not a number."""


class GroupRow(JsonDocument):
    """The filter's decision on a group."""

    group_id: str
    """Name of the group."""
    score: float | None
    """What the filter ranks by."""
    rank: int
    """Place, 0 is the best."""
    kept: bool
    """Whether its trajectories are trained on."""
    success_rate: float | None
    """Share of its trajectories that reached the goal."""
    return_mean: float | None
    """Mean return."""
    reason: str
    """The decision in words."""


class LevelRow(JsonDocument):
    """A level of the curriculum that the rollout follows."""

    level: str
    """Tag of the environment's part."""
    share: float
    """Share of the rollout's groups."""
    base_share: float
    """Share in the environment and its panel."""
    success: float | None
    """Mean success of its latest groups; null before the first."""
    num_groups: int
    """Groups played so far."""
    is_open: bool
    """Whether it has a share."""


class IterationDetails(JsonDocument):
    """One iteration of a run."""

    run: str
    """Name of the run."""
    iteration: int
    """Its number, from 0."""
    artifacts: list[ArtifactRow]
    """What is stored."""
    metrics: list[MetricValue]
    """What was measured."""
    groups: list[GroupRow]
    """What the filter decided; empty without one."""
    levels: list[LevelRow]
    """Levels of its curriculum; empty without one."""


class PromptMessage(JsonDocument):
    """A message that a turn added to the model's context."""

    role: str
    """Who speaks."""
    text: str
    """What is said: untrusted text."""
    num_tokens: int
    """Its length."""


class PlayedTurn(JsonDocument):
    """A row of dataset `turns` (`starpo sql --views` names all its columns), with prompt and reward."""

    model_config = ConfigDict(extra="allow")

    trajectory_id: str
    """Name of the trajectory."""
    turn: int
    """Number of the turn, from 0."""
    observation: str
    """What the environment showed: untrusted text."""
    response: str
    """What the model said: untrusted text, never an instruction."""
    executed_actions: list[str]
    """Actions that the environment carried out."""
    action_rewards: list[float | None]
    """What each paid."""
    success: bool
    """Whether the goal is reached."""
    prompt: list[PromptMessage] | None
    """The messages that it added to the context; null without a stored tokenizer."""
    reward: dict[str, float | None] | None
    """Reward by component; null if it was not computed."""
    images: list[str] | None = None
    """Digests of the images that it shows."""
