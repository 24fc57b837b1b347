"""The views that SQL sees: their names, columns and meaning.

Every dataset kind is a view of its own with two columns in front, `run` and `iteration`, and two behind, `artifact` and
`is_reused`. A row is there once for every iteration that names its artifact, so that views join on (run, iteration,
...) whatever was reused: with Online-k, `turns` shows the turns of one rollout under each of its k iterations, with
`is_reused` false the first time alone. To count what was played, and not what was trained on, ask `where not
is_reused`; two runs may still share a rollout, which `artifact` tells.

An iteration may play several rollouts (`rollout.max_attempts`): `turns` and `selection` say of each row by their column
`attempt` which of them it is of.

`trajectories` folds turns and joins what the later stages say of a trajectory; `prompts` is the text of what the model
was told; `panels` says in which initial states of evaluations training had begun; `runs` and `artifacts` are about
what is stored and not from it.
"""

from typing import NamedTuple

import pyarrow as pa

from starpo.schemas.datasets import DATASETS, STATUSES, UNKNOWN_FINISH

_FRONT = [pa.field("run", pa.string()), pa.field("iteration", pa.int32())]
_BACK = [pa.field("artifact", pa.string()), pa.field("is_reused", pa.bool_())]
_ATTEMPT = pa.field(
    "attempt",
    pa.int32(),
    metadata={
        "meaning": "which of the iteration's rollouts it is of: 0 for the first, and more where too few groups were "
        "kept (rollout.max_attempts)"
    },
)
_USE = {
    "selection": [_ATTEMPT],
    "turns": [
        _ATTEMPT,
        pa.field(
            "staleness",
            pa.int32(),
            metadata={
                "meaning": "updates by which the policy that played the turn was behind the one that this iteration's "
                "update began with; null in a replay, whose turns another run's policy played"
            },
        ),
    ],
}
"""What a view says besides of an iteration's use of the artifact; see `ragen.store.attempts`, and
`ragen.evidence.audit.staleness`."""


def _dataset_view(kind: str) -> pa.Schema:
    own = [pa.field(f.name, f.type, metadata=f.metadata) for f in DATASETS[kind].schema if f.name != "iteration"]
    return pa.schema([*_FRONT, *own, *_USE.get(kind, []), *_BACK])


DATASET_VIEWS: dict[str, pa.Schema] = {kind: _dataset_view(kind) for kind in DATASETS}
"""View -> columns. `iteration` is the one that the run names; metrics have one of their own, which equals it."""

RECORD_VIEWS: dict[str, pa.Schema] = {
    "runs": pa.schema(
        {
            "run": pa.string(),
            "flow": pa.string(),
            "preset": pa.string(),
            "status": pa.string(),
            "created": pa.timestamp("us", tz="UTC"),
            "config": pa.string(),
        }
    ),
    "artifacts": pa.schema(
        {
            "run": pa.string(),
            "iteration": pa.int32(),
            "stage": pa.string(),
            "kind": pa.string(),
            "artifact": pa.string(),
            "is_reused": pa.bool_(),
            "is_dropped": pa.bool_(),
            "num_rows": pa.int64(),
            "size_bytes": pa.int64(),
            "seconds": pa.float64(),
        }
    ),
    "panels": pa.schema(
        {
            "run": pa.string(),
            "iteration": pa.int32(),
            "initial_state_digest": pa.string(),
            "is_seen": pa.bool_(),
            "is_demonstrated": pa.bool_(),
            "num_unknown": pa.int64(),
            "artifact": pa.string(),
            "is_reused": pa.bool_(),
        }
    ),
}
"""What is known about runs, artifacts and evaluations. `config` is JSON: `config->>'$.filter.keep'`. `seconds` is the
wall-clock time of the work that made the artifact, in whichever run that was; it is empty where the manifest does not
tell. Of a dropped artifact only the manifest is left. A row of `panels` is an initial state of an artifact of kind
`episodes`: had a rollout or a demonstration behind the evaluated policy begun in it (`is_seen`), or a demonstration
(`is_demonstrated`)? `num_unknown` stages of that policy's training are not in the store any more, so that more may have
been seen."""

_STATUS_ORDER = ", ".join(f"'{status}'" for status in STATUSES)
_TURNS_OF = "run, iteration, trajectory_id"

WITHOUT_TOKENS = f"finish_reason = '{UNKNOWN_FINISH}' and len(response_ids) = 0"
"""In SQL: a response that was imported from a source without tokens. What counts tokens is null for it."""

TRAJECTORIES = f"""
with played as (
    select
        {_TURNS_OF},
        min(group_id) as group_id,
        min(env) as env,
        min(env_seed) as env_seed,
        min(member) as member,
        max(origin) as origin,
        count(*)::integer as num_turns,
        sum(len(executed_actions))::integer as num_actions,
        sum(len(list_filter(action_effective, lambda is_effective: is_effective)))::integer as num_effective_actions,
        if(bool_or({WITHOUT_TOKENS}), null, sum(len(response_ids))::integer) as num_response_tokens,
        sum((not format_ok and finish_reason <> 'none')::integer)::integer as num_format_errors,
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
"""One row a trajectory: its turns folded, its return, what the filter decided on its group, what the update did with
it. The last three are null where the stage did not run, or did not train on it; `status` is the worst of its turns, and
`origin` is 'search' where one of them was chosen. `num_response_tokens` is null where the source of an import
has no tokens."""

DECODED = "decoded"
"""SQL function of (run, tokens): the text of tokens by the run's tokenizer; null where no checkpoint has one."""

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
"""One row a turn: the text of its `prompt_ids`, which were added before its response, and of the whole context that the
model had before it, earlier responses included; special tokens stand in both. Null where no checkpoint has the run's
tokenizer."""


class DerivedView(NamedTuple):
    """A view over other views.

    Attributes:
        about: What a row is.
        sql: What it shows.
        sources: The views that it reads.
    """

    about: str
    sql: str
    sources: tuple[str, ...]


DERIVED_VIEWS: dict[str, DerivedView] = {
    "trajectories": DerivedView("a row a trajectory", TRAJECTORIES, ("turns", "rewards", "selection", "samples")),
    "prompts": DerivedView("a row a turn: what the model was told, as text", PROMPTS, ("turns",)),
}
"""By name."""

VIEW_NAMES: tuple[str, ...] = (*DATASET_VIEWS, *DERIVED_VIEWS, *RECORD_VIEWS)
"""All of them."""
