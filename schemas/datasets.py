"""The Arrow schema of every dataset that stages exchange.

A dataset kind has a version, incremented when its columns or their meaning change. Every column documents its meaning,
its unit and the meaning of null (nullable columns are marked; all others are never null). Lists are never null and
contain no nulls. All text is untrusted model or environment output.

    turns, siblings, images, turn_images -> rewards, teacher_logprobs -> selection -> samples, trained_tokens, metrics
    episodes, metrics <- evaluation;    credits, credit_estimates <- starpo credit, and credits before an update
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

TOKENS = pa.list_(pa.field("item", pa.int32(), nullable=False))
REALS = pa.list_(pa.field("item", pa.float32(), nullable=False))
DOUBLES = pa.list_(pa.field("item", pa.float64(), nullable=False))
TEXTS = pa.list_(pa.field("item", pa.string(), nullable=False))
FLAGS = pa.list_(pa.field("item", pa.bool_(), nullable=False))

STATUSES = ("ok", "format_error", "truncated", "env_error", "timeout")
"""Outcome of a turn. 'ok': a well-formed response was executed. 'format_error': the response was malformed.
'truncated': no response, because the context was full. 'env_error': the environment failed. 'timeout': the deadline
passed. Trajectories that contain one of the last two never enter group statistics or training."""

ORIGINS = ("policy", "greedy", "search")
"""Origin of a response. 'policy': sampled from the behaviour policy; also used for a turn without a response. 'greedy':
part of a greedily decoded trajectory, its group's baseline, which is excluded from statistics and training. 'search':
the best of several responses sampled in the same context (`siblings`), so not distributed like the behaviour policy."""

SEEN = "/seen"
"""Suffix of the cell of episodes from initial states seen in training; they do not count towards a panel's success."""
ERROR_STATUSES = ("env_error", "timeout")
NO_RESPONSE: dict[str, Any] = {
    "prompt_ids": [],
    "response_ids": [],
    "behaviour_logprobs": [],
    "response": "",
    "think": None,
    "answer": None,
    "parsed_actions": [],
    "executed_actions": [],
    "action_rewards": [],
    "action_effective": [],
    "format_ok": False,
    "forfeited_actions": 0,
    "finish_reason": "none",
    "origin": "policy",
    "num_candidates": 1,
    "num_as_good": 1,
}
"""Columns of a turn without a response."""
UNKNOWN_FINISH = "unknown"
FINISH_REASONS = ("stop", "length", "none", UNKNOWN_FINISH)
"""Why a response ended: at its end token (or at a text at which a program stops it), at `max_response_tokens`, or there
was none (status truncated, timeout, and env_error if the environment failed before the response). 'unknown': its source
does not record the reason (it was imported, or recorded from a server without log-probs); only then may data that the
source lacks be absent, as an empty list: `behaviour_logprobs`, or in addition `response_ids` and `prompt_ids`. Token
counts leave such responses out, and no update is computed on them."""


@dataclass(frozen=True)
class Column:
    """A column: its Arrow type, what it means, and whether it may be null."""

    name: str
    type: pa.DataType
    meaning: str
    nullable: bool = False


@dataclass(frozen=True)
class Dataset:
    """A dataset kind: its name, its version, its columns, and the columns that identify a row."""

    name: str
    version: int
    row: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema, with the meaning of every column and the dataset's name and version as metadata."""
        fields = [pa.field(c.name, c.type, nullable=c.nullable, metadata={"meaning": c.meaning}) for c in self.columns]
        return pa.schema(fields, metadata={"dataset": self.name, "version": str(self.version)})


_TURN = (
    Column("trajectory_id", pa.string(), "as in turns"),
    Column("group_id", pa.string(), "as in turns"),
    Column("turn", pa.int32(), "as in turns"),
)
_EPISODE_IDENTITY = (
    Column("env", pa.string(), "environment type, as registered; in a mixture, the tag of the part"),
    Column("env_seed", pa.int64(), "seed of the initial state, shared by the group"),
)

TURNS = Dataset(
    name="turns",
    version=2,
    row="one response and the environment's reply",
    key=("trajectory_id", "turn"),
    columns=(
        Column("trajectory_id", pa.string(), "unique in the dataset: group_id and member"),
        Column("group_id", pa.string(), "trajectories from one initial state share it"),
        *_EPISODE_IDENTITY,
        Column(
            "dynamics_seed",
            pa.int64(),
            "seed of this trajectory's random dynamics; with origin 'search', the dynamics are reseeded with it",
        ),
        Column("sampling_seed", pa.int64(), "seed of this trajectory's tokens; with origin 'search', of this turn's"),
        Column("member", pa.int32(), "index in the group, 0 .. N-1"),
        Column("turn", pa.int32(), "index in the trajectory, 0 .. K-1, without gaps"),
        Column("observation", pa.string(), "what the environment showed before the response"),
        Column("is_context_start", pa.bool_(), "whether the model's context restarts with this turn's prompt_ids"),
        Column("prompt_ids", TOKENS, "tokens added before this response, after all since the last context start"),
        Column(
            "response_ids",
            TOKENS,
            "sampled tokens, with the end token if there is one; empty if an import lacks them",
        ),
        Column(
            "behaviour_logprobs",
            REALS,
            "nats, under the sampling distribution; aligned with response_ids; empty if an import lacks them",
        ),
        Column("origin", pa.string(), "how the response was obtained: " + ", ".join(ORIGINS)),
        Column(
            "num_candidates", pa.int32(), "responses sampled in its context, from which it was chosen; 1: this one only"
        ),
        Column("num_as_good", pa.int32(), "those of them whose score is at least its own, including itself"),
        Column("response", pa.string(), "response_ids as text, without the end token"),
        Column("think", pa.string(), "the reasoning inside the tags; null: none can be identified", True),
        Column("answer", pa.string(), "the answer inside the tags; null: none can be identified", True),
        Column("parsed_actions", TEXTS, "actions named in the answer, known or not, in order"),
        Column("executed_actions", TEXTS, "actions that were executed, a prefix of the known ones"),
        Column("action_rewards", DOUBLES, "the environment's reward of each executed action"),
        Column("action_effective", FLAGS, "whether each executed action changed the state"),
        Column("format_ok", pa.bool_(), "tags well formed, at least one known action, and no unknown one"),
        Column("forfeited_actions", pa.int32(), "actions forfeited by a malformed response; they count as used"),
        Column("action_cost", pa.float64(), "the environment's reward for an ordinary action, at most 0"),
        Column("finish_reason", pa.string(), "why the response ended: " + ", ".join(FINISH_REASONS)),
        Column("status", pa.string(), "how the turn went: " + ", ".join(STATUSES)),
        Column("terminated", pa.bool_(), "the environment ended the episode in this turn"),
        Column("truncated", pa.bool_(), "a limit (turns, actions, context, deadline) ended it in this turn"),
        Column("success", pa.bool_(), "the task's goal is reached after this turn"),
        Column("actions_left", pa.int32(), "actions left before this turn"),
        Column("initial_state_digest", pa.string(), "16 hex digits of the episode's first state; equal in a group"),
        Column("state_digest", pa.string(), "16 hex digits of the state after this turn"),
        Column("info", pa.string(), "the environment's info after this turn, or the error, as JSON"),
    ),
)

SIBLINGS = Dataset(
    name="siblings",
    version=1,
    row="a candidate from which search chose a turn's response",
    key=("trajectory_id", "turn", "candidate"),
    columns=(
        Column("trajectory_id", pa.string(), "as in turns"),
        Column("turn", pa.int32(), "as in turns"),
        Column("candidate", pa.int32(), "index among the turn's candidates, in the order in which ties are decided"),
        Column(
            "parent",
            pa.int32(),
            "candidate of the previous turn that this one continues; candidates with the same parent share a context; "
            "-1 in the first turn",
        ),
        Column("response_ids", TOKENS, "as in turns"),
        Column("behaviour_logprobs", REALS, "as in turns"),
        Column("response", pa.string(), "as in turns"),
        Column("executed_actions", TEXTS, "as in turns, on the candidate's own copy of the environment"),
        Column("score", pa.float64(), "score by which search chooses; null: the environment failed", True),
        Column("chosen", pa.bool_(), "whether it is the response in turns, with origin 'search'"),
    ),
)

IMAGES = Dataset(
    name="images",
    version=1,
    row="an image that prompts show, once however often it is shown",
    key=("digest",),
    columns=(
        Column("digest", pa.string(), "32 hex digits, of size and pixels"),
        Column("height", pa.int32(), "pixels"),
        Column("width", pa.int32(), "pixels"),
        Column("png", pa.string(), "the pixels as a PNG file, in base64"),
    ),
)

TURN_IMAGES = Dataset(
    name="turn_images",
    version=1,
    row="an image in the prompt of a turn",
    key=("trajectory_id", "turn", "position"),
    columns=(
        Column("trajectory_id", pa.string(), "as in turns"),
        Column("turn", pa.int32(), "as in turns"),
        Column(
            "position",
            pa.int32(),
            "index of the image's first placeholder in prompt_ids; without tokens, its number in the prompt",
        ),
        Column(
            "num_tokens", pa.int32(), "number of its placeholders, one after the other; 0 if imported without tokens"
        ),
        Column("image", pa.string(), "digest of the image in images"),
    ),
)

REWARDS = Dataset(
    name="rewards",
    version=2,
    row="a turn",
    key=("trajectory_id", "turn"),
    columns=(
        *_TURN,
        Column("component_names", TEXTS, "names of the reward's components"),
        Column("component_values", DOUBLES, "aligned with component_names"),
        Column("total", pa.float64(), "the sum of component_values"),
        Column("trajectory_return", pa.float64(), "the sum of total over the trajectory's turns, R(tau)"),
        Column("normalised_return", pa.float64(), "trajectory_return after the configured normalisation"),
        Column(
            "is_valid",
            pa.bool_(),
            "false if the trajectory has an error status or is greedy; excluded from statistics and training",
        ),
    ),
)

SELECTION = Dataset(
    name="selection",
    version=1,
    row="a group",
    key=("group_id",),
    columns=(
        Column("group_id", pa.string(), "as in turns"),
        *_EPISODE_IDENTITY,
        Column("num_trajectories", pa.int32(), "trajectories of the group, excluding its greedy one"),
        Column("num_valid", pa.int32(), "those without an error status; only they enter the statistics"),
        Column("metric", pa.string(), "what is scored: std, sample_std, mean, sum, entropy, entropy_std or length"),
        Column("score", pa.float64(), "the metric's value; 0 where num_valid is 0"),
        Column("return_std", pa.float64(), "standard deviation (ddof 0) of the returns; 0 where num_valid is 0"),
        Column("return_mean", pa.float64(), "mean of the returns; 0 where num_valid is 0"),
        Column("return_max", pa.float64(), "largest return; 0 where num_valid is 0"),
        Column("return_min", pa.float64(), "smallest return; 0 where num_valid is 0"),
        Column("success_rate", pa.float64(), "share of valid trajectories that succeed; 0 where num_valid is 0"),
        Column(
            "rank", pa.int32(), "0 is the best; ties go to the earlier group; groups that could not be kept come last"
        ),
        Column("kept", pa.bool_(), "whether the group is trained on"),
        Column("strategy", pa.string(), "the filter's strategy"),
        Column("reason", pa.string(), "why the group was kept or dropped, in words"),
    ),
)

CURRICULUM = Dataset(
    name="curriculum",
    version=1,
    row="a level of the curriculum",
    key=("level",),
    columns=(
        Column("level", pa.string(), "tag of the environment's part"),
        Column("place", pa.int32(), "0 is the easiest"),
        Column("base_share", pa.float64(), "share in the environment and its panel; sums to 1"),
        Column("share", pa.float64(), "share of the groups of the rollout that follows; sums to 1"),
        Column("is_open", pa.bool_(), "whether share is above 0"),
        Column("success", pa.float64(), "mean of recent; null: no group yet", nullable=True),
        Column("recent", DOUBLES, "success rates of its latest groups with a valid trajectory, oldest first"),
        Column("num_groups", pa.int64(), "groups played so far"),
        Column("owed", pa.float64(), "groups that its shares so far gave it, minus num_groups"),
    ),
)

SAMPLES = Dataset(
    name="samples",
    version=1,
    row="a trajectory that was trained on",
    key=("trajectory_id",),
    columns=(
        Column("trajectory_id", pa.string(), "as in turns"),
        Column("group_id", pa.string(), "as in turns"),
        Column("num_tokens", pa.int32(), "response tokens in the loss"),
        Column("trajectory_return", pa.float64(), "as in rewards"),
        Column("advantage", pa.float64(), "mean over its tokens, as it entered the loss"),
        Column(
            "mean_ratio",
            pa.float64(),
            "mean probability ratio, policy to update.ratio_to, over tokens with a loss and steps",
        ),
        Column(
            "clip_fraction",
            pa.float64(),
            "share of tokens with a loss (over steps) whose clipped term was the smaller one",
        ),
        Column(
            "kl_behaviour",
            pa.float64(),
            "mean behaviour minus policy log-prob, nats per token, after the update; null: not scored then",
            nullable=True,
        ),
        Column(
            "kl_reference",
            pa.float64(),
            "mean KL to the reference, nats per token, after the update; null: no reference, or not scored then",
            nullable=True,
        ),
        Column("entropy", pa.float64(), "mean token entropy before the update, nats; null: not scored then", True),
        Column(
            "old_behaviour_gap",
            pa.float64(),
            "largest |old - behaviour| log-prob over its tokens, nats; null: not scored before the update",
            nullable=True,
        ),
        Column("loss_share", pa.float64(), "its share of the sum of absolute policy-loss terms; sums to 1"),
    ),
)

TRAINED = Dataset(
    name="trained_tokens",
    version=1,
    row="a turn with a response of a trajectory that was trained on: its numbers by token, aligned with response_ids",
    key=("trajectory_id", "turn"),
    columns=(
        *_TURN,
        Column("has_loss", FLAGS, "whether the token entered the policy's loss in some step"),
        Column("advantages", REALS, "as they entered the loss"),
        Column("ratios", REALS, "mean over steps of the ratio, policy to update.ratio_to; 1 without a loss"),
        Column("clip_fractions", REALS, "share of steps in which its clipped term was the smaller one"),
        Column("entropies", REALS, "before the update, nats; empty: not scored then"),
    ),
)

TEACHER_LOGPROBS = Dataset(
    name="teacher_logprobs",
    version=1,
    row="a turn with a response, as a teacher scored it",
    key=("trajectory_id", "turn"),
    columns=(
        *_TURN,
        Column("logprobs", REALS, "nats, of response_ids at the rollout's temperature; aligned with them"),
        Column("is_mode", FLAGS, "whether the teacher finds no other token more probable; aligned with logprobs"),
        Column("num_hint_tokens", pa.int32(), "tokens of this turn's hint, which the policy has not seen"),
    ),
)

TEACHER_TOP_TOKENS = Dataset(
    name="teacher_top_tokens",
    version=1,
    row="a turn with a response: what its teacher finds most probable instead of each token",
    key=("trajectory_id", "turn"),
    columns=(
        *_TURN,
        Column("token_ids", TOKENS, "teacher.top_k tokens at the position of each of response_ids, end to end"),
        Column("logprobs", REALS, "theirs, nats at the rollout's temperature, falling at a position; aligned"),
    ),
)

CREDITS = Dataset(
    name="credits",
    version=1,
    row="a turn of a stored trajectory, with the values before and after it by Monte Carlo",
    key=("trajectory_id", "turn"),
    columns=(
        *_TURN,
        Column(
            "state",
            pa.string(),
            "16 hex digits of what decides how play continues before this turn: the environment's state, the prompt, "
            "turns and actions left; turns with the same one share their continuations",
        ),
        Column("num_continuations", pa.int32(), "continuations played from this state, at least 2"),
        Column("num_tokens", pa.int64(), "tokens sampled in all of them"),
        Column(
            "returns",
            DOUBLES,
            "undiscounted return from this turn on of continuation k = 0, 1, ...; continuation k has the same random "
            "numbers in every state",
        ),
        Column("success", pa.float64(), "share of the continuations that reach the task's goal"),
        Column("value", pa.float64(), "mean of returns: the value before this turn"),
        Column("value_se", pa.float64(), "its standard error, of a sample (ddof 1)"),
        Column("value_after", pa.float64(), "value before the next turn; 0 where the episode ended in this one"),
        Column("reward", pa.float64(), "of the stored turn, as total in rewards"),
        Column("advantage", pa.float64(), "reward + value_after - value"),
        Column(
            "advantage_se",
            pa.float64(),
            "its standard error; continuations with the same k before and after the turn count as pairs",
        ),
        Column(
            "solver_before",
            pa.float64(),
            "mean return from this turn on with the environment's solver as the player; null: it has none",
            nullable=True,
        ),
        Column(
            "solver_after",
            pa.float64(),
            "solver_before of the next turn; 0 where the episode ended in this one; null: there is no solver",
            nullable=True,
        ),
    ),
)

QUANTITIES = ("advantage", "value")
CREDIT_ESTIMATES = Dataset(
    name="credit_estimates",
    version=1,
    row="what an estimator says of a turn's credit; a turn without tokens that it credits has none",
    key=("estimator", "trajectory_id", "turn"),
    columns=(
        Column("estimator", pa.string(), "the estimator and its settings that are not the default ones"),
        *_TURN,
        Column("quantity", pa.string(), "what is estimated: " + " or ".join(QUANTITIES) + ", that before the turn"),
        Column(
            "estimate",
            pa.float64(),
            "of an advantage: mean over the turn's tokens that are credited, as they would enter the loss",
        ),
    ),
)

METRICS = Dataset(
    name="metrics",
    version=1,
    row="a named number",
    key=("iteration", "stage", "name"),
    columns=(
        Column("iteration", pa.int32(), "number of updates done before the stage began"),
        Column("stage", pa.string(), "stage that measured it"),
        Column("name", pa.string(), "slash-separated name, such as update/gradient_norm"),
        Column("value", pa.float64(), "finite; a number that does not exist is absent, never NaN"),
    ),
)

EPISODES = Dataset(
    name="episodes",
    version=1,
    row="an evaluated episode",
    key=("cell", "env_seed", "member"),
    columns=(
        Column(
            "cell",
            pa.string(),
            "environment under evaluation; ends with /seen if training started from the same initial state",
        ),
        *_EPISODE_IDENTITY,
        Column("member", pa.int32(), "sample from this prompt, 0 .. samples_per_prompt-1"),
        Column("temperature", pa.float64(), "sampling temperature"),
        Column("initial_state_digest", pa.string(), "16 hex digits of the episode's first state"),
        Column("num_turns", pa.int32(), "turns played"),
        Column("num_actions", pa.int32(), "actions executed"),
        Column("num_response_tokens", pa.int32(), "sampled tokens"),
        Column("num_format_errors", pa.int32(), "malformed responses"),
        Column("episode_return", pa.float64(), "sum of the environment's rewards, penalties not included"),
        Column("success", pa.bool_(), "the task's goal was reached"),
        Column("status", pa.string(), "the worst status of its turns"),
        Column("observations", TEXTS, "observation before each turn"),
        Column("responses", TEXTS, "response of each turn, aligned with observations"),
        Column("actions", TEXTS, "actions executed in each turn, joined by ' || ', aligned with observations"),
    ),
)

EPISODE_TURNS = Dataset(
    name="episode_turns",
    version=1,
    row="a turn of an evaluated episode; the group is the prompt of the panel",
    key=TURNS.key,
    columns=TURNS.columns,
)

_EVALUATED, _IMAGES = (EPISODES, EPISODE_TURNS), (IMAGES, TURN_IMAGES)
DATASETS: dict[str, Dataset] = {
    d.name: d
    for d in (
        TURNS,
        SIBLINGS,
        REWARDS,
        SELECTION,
        CURRICULUM,
        TEACHER_LOGPROBS,
        TEACHER_TOP_TOKENS,
        SAMPLES,
        TRAINED,
        CREDITS,
        CREDIT_ESTIMATES,
        METRICS,
        *_EVALUATED,
        *_IMAGES,
    )
}
