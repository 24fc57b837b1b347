"""The SQL views: their names, columns and meaning.

Every dataset kind is a view, with two extra columns in front, `run` and `iteration`, and two at the end, `artifact` and
`is_reused`. A row appears once for every iteration that references its artifact, so that views join on (run, iteration,
...) regardless of reuse: with Online-k, `turns` shows the turns of one rollout under each of its k iterations, with
`is_reused` false only for the first. To count sampled rather than trained trajectories, add `where not is_reused`; two
runs may still share a rollout, which `artifact` shows.

A thing has one name in all views: what was played is `environment`, an evaluation's fixed prompts are its `panel`.
Where stored columns have other names, the view renames them.

An iteration may consist of several rollouts (`rollout.max_attempts`): the column `attempt` of `turns` and `selection`
tells which of them a row belongs to.

`trajectories` aggregates turns and joins the results of later stages; `prompts` is the text of the prompts given to the
model; `panels` lists the initial states of evaluations and whether training had begun in them; `runs` and `artifacts`
describe the store rather than its contents.
"""

from typing import NamedTuple

import pyarrow as pa

from starpo.schemas.datasets import DATASETS, ERROR_STATUSES, STATUSES, UNKNOWN_FINISH
from starpo.schemas.imported import FORMAT, sql_lacks


def _column(name: str, kind: pa.DataType, meaning: str) -> pa.Field:
    return pa.field(name, kind, metadata={"meaning": meaning})


_RUN = _column("run", pa.string(), "name of the run")
_FRONT = [
    _RUN,
    _column("iteration", pa.int32(), "updates that the run had done before; one artifact may be in several"),
]
_BACK = [
    _column("artifact", pa.string(), "key of the artifact that holds the row; those that one work makes share it"),
    _column("is_reused", pa.bool_(), "whether an earlier iteration of the run uses the same artifact (Online-k)"),
]
_ATTEMPT = _column(
    "attempt",
    pa.int32(),
    "which of the iteration's rollouts it belongs to: 0 for the first, more if too few groups were kept "
    "(rollout.max_attempts)",
)
_USE = {
    "selection": [_ATTEMPT],
    "turns": [
        _ATTEMPT,
        _column(
            "staleness",
            pa.int32(),
            "updates by which the policy that played the turn was behind the one that this iteration's update began "
            "with; null in a replay, whose turns another run's policy played",
        ),
    ],
}
"""View -> additional columns that describe an iteration's use of the artifact; see `ragen.store.attempts` and
`ragen.evidence.audit.staleness`."""


def _dataset_view(kind: str) -> pa.Schema:
    fields = [pa.field(f.name, f.type, metadata=f.metadata) for f in DATASETS[kind].schema if f.name != "iteration"]
    return pa.schema([*_FRONT, *fields, *_USE.get(kind, []), *_BACK])


DATASET_VIEWS: dict[str, pa.Schema] = {kind: _dataset_view(kind) for kind in DATASETS}
"""View -> columns. `iteration` is that of the run record; it replaces the equal column of `metrics`."""

RENAMED = {"env": "environment", "cell": "panel and is_seen"}
"""Stored column -> what the views have in its place, for messages."""

_ENVIRONMENT = _column(
    "environment", pa.string(), "what was played: the environment's type, or in a mixture the tag of the part"
)
_PANEL = _column("panel", pa.string(), "name of the evaluation: the run's own environment, or a variant of it")


class _Stored(NamedTuple):
    """How a view shows stored columns under other names.

    Attributes:
        sql: Stored column -> expressions that replace it.
        columns: Stored column -> the columns that these are.
    """

    sql: dict[str, str]
    columns: dict[str, list[pa.Field]]


_PLAYED = _Stored({"env": "env as environment"}, {"env": [_ENVIRONMENT]})
_STORED = {
    "turns": _PLAYED,
    "episode_turns": _PLAYED,
    "selection": _PLAYED,
    "episodes": _Stored(
        {
            **_PLAYED.sql,
            "cell": "regexp_replace(cell, '/seen$', '') as panel, ends_with(cell, '/seen') as is_seen",
        },
        {
            **_PLAYED.columns,
            "cell": [
                _PANEL,
                _column(
                    "is_seen",
                    pa.bool_(),
                    "whether training had started from the same initial state, so that success does not count it",
                ),
            ],
        },
    ),
    "images": _Stored(
        {"digest": "digest as image"},
        {"digest": [_column("image", pa.string(), "digest of size and pixels, as in turn_images")]},
    ),
}
"""View of a dataset -> the columns that it shows under other names."""

RECORD_VIEWS: dict[str, pa.Schema] = {
    "runs": pa.schema(
        [
            _RUN,
            _column("flow", pa.string(), "what made the run: starpo (training, forks), replay or import"),
            _column("preset", pa.string(), "preset that its settings came from; null: none is known"),
            _column("status", pa.string(), "running, completed, failed or cancelled; null: not recorded"),
            _column("created", pa.timestamp("us", tz="UTC"), "when it was created"),
            _column("config", pa.string(), "its settings as JSON: config->>'$.filter.keep'"),
        ]
    ),
    "artifacts": pa.schema(
        [
            *_FRONT,
            _column("stage", pa.string(), "stage that made it, as the run's record names it"),
            _column("kind", pa.string(), "what it is: a dataset such as turns, or checkpoint"),
            _column("artifact", pa.string(), "its key; the artifacts that one work makes share it"),
            _BACK[1],
            _column("is_dropped", pa.bool_(), "whether only its manifest is left"),
            _column("num_rows", pa.int64(), "rows of a dataset; null for others"),
            _column("size_bytes", pa.int64(), "bytes of its files, also of those that were dropped"),
            _column(
                "seconds",
                pa.float64(),
                "from the beginning of the work that made it, in whichever run that was, until it was to be written: "
                "the work took the most seconds among its artifacts; null: not recorded",
            ),
        ]
    ),
    "panels": pa.schema(
        [
            *_FRONT,
            _PANEL,
            _ENVIRONMENT,
            _column("initial_state_digest", pa.string(), "digest of an initial state that was evaluated"),
            _column(
                "is_seen", pa.bool_(), "whether a rollout or demonstration behind the evaluated policy had begun in it"
            ),
            _column("is_demonstrated", pa.bool_(), "whether a demonstration behind the policy had"),
            _column(
                "num_unknown",
                pa.int64(),
                "stages of the policy's training that are no longer in the store, so that more may have been seen",
            ),
            _column("settings", pa.string(), "settings of the evaluated environment as JSON; null: not recorded"),
            *_BACK,
        ]
    ),
}
"""Views of the records of runs, artifacts and evaluations."""


def stored_view(name: str, source: str) -> str:
    """Return the query of a view of a dataset or of records over a table with its stored columns."""
    if name not in _STORED:
        return f"from {source}"
    columns = (_STORED[name].sql.get(column, column) for column in DATASET_VIEWS[name].names)
    return f"select {', '.join(columns)} from {source}"


def stored_columns(name: str) -> pa.Schema:
    """Return the columns of a view of a dataset or of records, as SQL sees them."""
    schema = {**DATASET_VIEWS, **RECORD_VIEWS}[name]
    if name not in _STORED:
        return schema
    return pa.schema([shown for field in schema for shown in _STORED[name].columns.get(field.name, [field])])


_STATUS_ORDER = ", ".join(f"'{status}'" for status in STATUSES)
_TURNS_OF = "run, iteration, trajectory_id"

IS_ERROR = f"status in ({', '.join(repr(status) for status in ERROR_STATUSES)})"
"""SQL condition for a turn or an episode that an error or the deadline ended."""

WITHOUT_TOKENS = f"finish_reason = '{UNKNOWN_FINISH}' and len(response_ids) = 0"
"""SQL condition for a response imported from a source without tokens. Token counts are null for it."""

WITHOUT_FORMAT = sql_lacks(FORMAT)
"""SQL condition for a response imported from a source that does not say which are well formed. `format_ok` is no fact
of it."""

TRAJECTORIES = f"""
with played as (
    select
        {_TURNS_OF},
        min(group_id) as group_id,
        min(environment) as environment,
        min(env_seed) as env_seed,
        min(member) as member,
        max(origin) as origin,
        count(*)::integer as num_turns,
        sum(len(executed_actions))::integer as num_actions,
        sum(len(list_filter(action_effective, lambda is_effective: is_effective)))::integer as num_effective_actions,
        if(bool_or({WITHOUT_TOKENS}), null, sum(len(response_ids))::integer) as num_response_tokens,
        if(
            bool_or({WITHOUT_FORMAT}), null, sum((not format_ok and finish_reason <> 'none')::integer)::integer
        ) as num_format_errors,
        bool_or(success) as success,
        bool_or(terminated) as terminated,
        bool_or(truncated) as truncated,
        [{_STATUS_ORDER}][max(list_position([{_STATUS_ORDER}], status))] as status,
        min(artifact) as artifact,
        bool_and(is_reused) as is_reused
    from turns
    group by {_TURNS_OF}
)
select
    played.* exclude (artifact, is_reused),
    rewards.trajectory_return,
    rewards.normalised_return,
    rewards.is_valid,
    selection.kept,
    selection.rank,
    selection.score,
    selection.reason,
    samples.advantage,
    samples.loss_share,
    samples.mean_ratio,
    samples.clip_fraction,
    samples.kl_behaviour,
    played.artifact,
    played.is_reused
from played
left join (from rewards select * exclude (group_id) where turn = 0) as rewards using ({_TURNS_OF})
left join selection using (run, iteration, group_id)
left join (from samples select * exclude (group_id)) as samples using ({_TURNS_OF})
"""
"""One row per trajectory: its aggregated turns, its return, the filter's decision on its group, and the update's
measurements. The last three are null if the stage did not run, or did not train on it; `status` is the worst of its
turns, and `origin` is 'search' if search chose one of them. `num_response_tokens` and
`num_format_errors` are null for a trajectory imported from a source without tokens, and without `format_ok`."""

DECODED = "decoded"
"""SQL function of (run, tokens) that decodes tokens with the run's tokenizer; null if no checkpoint has one."""

PROMPTS = f"""
with placed as (
    select
        *,
        sum(is_context_start::integer) over (partition by {_TURNS_OF} order by turn) as context_number
    from turns
)
select
    {_TURNS_OF},
    turn,
    is_context_start,
    len(prompt_ids)::integer as num_prompt_tokens,
    {DECODED}(run, prompt_ids) as prompt,
    {DECODED}(
        run,
        list_concat(flatten(list(list_concat(prompt_ids, response_ids)) over (
            partition by {_TURNS_OF}, context_number order by turn
            rows between unbounded preceding and 1 preceding
        )), prompt_ids)
    ) as context,
    artifact,
    is_reused
from placed
"""
"""One row per turn: the text of its `prompt_ids`, which were added before its response, and of the whole context before
the response, earlier responses included; both contain special tokens. Null if no checkpoint has the run's
tokenizer."""


class DerivedView(NamedTuple):
    """A view over other views.

    Attributes:
        about: Meaning of a row.
        meanings: Column -> its meaning, of those that are not columns of a source.
        sql: Query that defines the view.
        sources: Views that the query reads.
    """

    about: str
    meanings: dict[str, str]
    sql: str
    sources: tuple[str, ...]


DERIVED_VIEWS: dict[str, DerivedView] = {
    "trajectories": DerivedView(
        "a row per trajectory",
        {
            "origin": "'search' if search chose one of its responses; else as in turns",
            "num_turns": "turns",
            "num_actions": "executed actions",
            "num_effective_actions": "executed actions that had an effect",
            "num_response_tokens": "tokens of its responses; null: imported without tokens",
            "num_format_errors": "malformed responses; null: imported from a source that does not say",
            "success": "whether the goal was reached in some turn",
            "terminated": "whether the environment ended it",
            "truncated": "whether a limit ended it",
            "status": f"the worst of its turns; from good to bad: {', '.join(STATUSES)}",
        },
        TRAJECTORIES,
        ("turns", "rewards", "selection", "samples"),
    ),
    "prompts": DerivedView(
        "a row per turn: what the model saw, as text",
        {
            "num_prompt_tokens": "tokens added before this response",
            "prompt": "prompt_ids as text, special tokens included; null: no checkpoint has the run's tokenizer",
            "context": "everything before the response as text, earlier responses included; null as for prompt",
        },
        PROMPTS,
        ("turns",),
    ),
}
"""View -> its definition."""

VIEW_NAMES: tuple[str, ...] = (*DATASET_VIEWS, *DERIVED_VIEWS, *RECORD_VIEWS)
"""Names of all views."""
