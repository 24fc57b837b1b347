"""Audit of evaluation panels for initial states that rollouts of training or demonstrations had also begun in."""

from functools import cache
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter

from starpo.ragen.config.environment import EnvironmentConfig
from starpo.ragen.core.guard import FOREIGN
from starpo.ragen.envs.make import make
from starpo.ragen.evidence.audit.database import Database
from starpo.ragen.evidence.audit.finding import Finding, Severity
from starpo.ragen.evidence.audit.views import IS_ERROR

_PANELS = f"""
with played as (
    select
        run,
        iteration,
        panel,
        environment,
        settings,
        initial_state_digest,
        episodes.is_seen as is_apart,
        success,
        {IS_ERROR} as has_failed,
        panels.is_seen as is_seen,
        is_demonstrated,
        num_unknown
    from episodes
        left join panels using (run, iteration, artifact, panel, environment, initial_state_digest)
    where not episodes.is_reused
)
select
    run,
    iteration,
    panel as whole_panel,
    panel || if(count(*) over (partition by run, iteration, panel) > 1, '/' || environment, '') as panel,
    environment,
    any_value(settings) as settings,
    count(distinct initial_state_digest) as states,
    count(distinct initial_state_digest) filter (is_seen) as seen,
    count(distinct initial_state_digest) filter (is_demonstrated) as demonstrated,
    count(distinct initial_state_digest) filter (is_seen and not is_apart) as mixed_in,
    round(avg(success::integer) filter (is_seen and not has_failed), 4) as success_seen,
    round(avg(success::integer) filter (not is_seen and not has_failed), 4) as success_unseen,
    coalesce(max(num_unknown), 1)::bigint as unknown_origins,
    min(initial_state_digest) filter (is_seen) as example
from played
group by run, iteration, panel, environment
order by all
"""
_SCHEMA = pa.schema(
    {
        "run": pa.string(),
        "iteration": pa.int32(),
        "panel": pa.string(),
        "states": pa.int64(),
        "seen": pa.int64(),
        "share": pa.float64(),
        "demonstrated": pa.int64(),
        "mixed_in": pa.int64(),
        "success_seen": pa.float64(),
        "success_unseen": pa.float64(),
        "unknown_origins": pa.int64(),
        "covers_all": pa.bool_(),
        "example": pa.string(),
    }
)
_SETTINGS = TypeAdapter(EnvironmentConfig)


def contaminated_panels(database: Database) -> Finding:
    """Find evaluation states that training or demonstrations also began in; a fault if success includes them."""
    table = database.query(_PANELS)
    rows = [
        {
            **row,
            "share": round(row["seen"] / row["states"], 4),
            "covers_all": _covers_all(row["settings"], row["environment"]) if row["mixed_in"] else None,
        }
        for row in table.to_pylist()
    ]
    mixed = [row for row in rows if row["mixed_in"] and row["covers_all"] is False]
    apart = [row for row in rows if row["seen"] and not row["covers_all"]]
    severity: Severity = "fault" if mixed else "warning" if apart else "note"
    return Finding(
        title="Contaminated panels",
        severity=severity,
        summary=_summary(rows, apart, mixed),
        meaning=(
            "seen: states of the panel, by digest, from which a rollout or a demonstration in the evaluated policy's "
            "lineage started; demonstrated: those from which a demonstration did. They are measured separately, as "
            "PANEL/seen; mixed_in: those that are not, so that success counts them, which is a fault. "
            "covers_all, for panels with mixed_in: whether the environment has so few states that a panel and training "
            "must share them; empty if it cannot be created here. PANEL/TAG: the prompts of one part of a mixture. "
            "unknown_origins: stages of the training that are no longer in the store, or 1 if nothing is known of it: "
            "then more may have been seen. What a downloaded model had learned before is never known."
        ),
        table=pa.Table.from_pylist(mixed or rows, schema=_SCHEMA),
        is_over_time=not mixed,
    )


def _summary(rows: list[dict[str, Any]], apart: list[dict[str, Any]], mixed: list[dict[str, Any]]) -> str:
    if not rows:
        return "No evaluation is stored, so there is no panel to check."
    untold = [row for row in rows if row["unknown_origins"]]
    unknown = f" For {_number(untold)} evaluations, not all initial states of training are known." if untold else ""
    covered = sorted({row["panel"] for row in rows if row["covers_all"]})
    all_there_is = f" A panel of {', '.join(covered)} covers every state there is to train on." if covered else ""
    if not apart:
        known = "known " if untold else ""
        verdict = f"None of {_number(rows)} evaluations starts from a {known}state of training." if not covered else ""
        return f"{verdict}{all_there_is}{unknown}".strip()
    worst = max(apart, key=lambda row: row["share"])
    text = (
        f"{_number(apart)} of {_number(rows)} evaluations start from states of training: up to {worst['seen']} of "
        f"{worst['states']} states ({worst['share']:.0%}; {worst['panel']}, iteration {worst['iteration']}"
    )
    if worst["success_seen"] is not None and worst["success_unseen"] is not None:
        text += f": success {worst['success_seen']:.4g} on them, {worst['success_unseen']:.4g} on the others"
    counted = f"; success of {_number(mixed)} counts them" if mixed else ""
    return f"{text}){counted}.{all_there_is}{unknown}"


def _number(rows: list[dict[str, Any]]) -> int:
    """Count evaluations: one of a mixture has a row per part."""
    return len({(row["run"], row["iteration"], row["whole_panel"]) for row in rows})


@cache
def _covers_all(environment: str | None, tag: str) -> bool | None:
    """Whether training and panels share all initial states of what plays under the tag; None if it cannot be made here.

    Args:
        environment: Settings of the panel's environment, as JSON.
        tag: Column `environment`: the environment's type, or the tag of a part of a mixture.
    """
    try:
        settings = _SETTINGS.validate_json(environment or "")
        return make(settings.tagged()[tag]).num_initial_states is not None
    except FOREIGN:  # the stored settings may be of any environment, and it may raise anything
        return None
