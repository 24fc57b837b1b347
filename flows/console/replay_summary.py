"""Results of a replay, one row per iteration: as facts, and as a table for the terminal."""

from collections.abc import Mapping
from typing import Any

from starpo.flows.console.documents.recomputing import ReplayedRun
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, say
from starpo.ragen.agents.evaluation.comparison import COUNTED, counts_by_prompt, paired_comparison
from starpo.ragen.evidence.run_facts import success_of
from starpo.ragen.runs.metrics import stored_metrics
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import RunRecord, StageKeys

_COLUMNS = {
    "kept both": "groups_kept_by_both",
    "only base": "groups_kept_by_base_only",
    "only branch": "groups_kept_by_branch_only",
    "sign flips": "advantage_sign_flips",
    "cos grad": "gradient_cosine",
    "cos change": "weight_change_cosine",
}
_PAIRS = {
    "KL": "kl_behaviour",
    "clip share": "clip_fraction",
    "entropy": "entropy",
    "ESS": "validity_before/effective_sample_size_trajectories",
}
"""Columns with two numbers, the base's and the branch's."""
_LEGEND = {
    "kept both": "groups that the filters of base and branch both keep",
    "sign flips": "share of the trajectories in both updates whose advantage changes its sign",
    "cos grad": "cosine of the two gradients, before the first step",
    "cos change": "cosine of the two changes of the weights",
    "KL": "to the policy that sampled, nats per token, after the update",
    "clip share": "share of tokens whose ratio was clipped",
    "entropy": "nats per token, before the update",
    "ESS": "effective sample size of the importance weights of trajectories, before the update; 1 is all",
}
"""Column -> its meaning."""


def replay_facts(store: Store, run: str) -> dict[str, Any]:
    """Collect a replay's record, the comparison of every iteration, and the evaluations of both ends.

    Raises:
        StoreError: If there is no such run, or an artifact of it cannot be read.
    """
    record = store.runs.get(run)
    recorded = store.runs.iterations(run)
    iterations = []
    for iteration, stages in recorded.items():
        if "compare" in stages:
            metrics = stored_metrics(store, stages["compare"]["metrics"])
            values = {name.removeprefix("replay/"): value for name, value in metrics.items()}
            iterations.append({"iteration": iteration, **values})
    ends = _ends(record, recorded)
    return {
        "run": run,
        **record.parameters,
        "iterations": iterations,
        "evaluation": {side: success_of(store, key, record.environment) for side, key in ends.items()},
        "difference": _difference(store, ends),
    }


def print_comparison(store: Store, run: str, as_json: bool) -> None:
    """Print the comparison to the terminal."""
    facts = replay_facts(store, run)
    if as_json:
        print_json(ReplayedRun(**facts))
        return
    console = Console()
    header, *rows = _rows(facts)
    named = [dict(zip(header, row, strict=True)) for row in rows]
    print_table(console, named, title=run, names=header, numbers=header)
    if pairs := [label for label in header if label in _PAIRS]:
        say(console, f"{', '.join(pairs)}: the base's, below it the branch's")
    for label in header:
        if label in _LEGEND:
            say(console, f"{label}: {_LEGEND[label]}")
    for line in _lines(facts):
        say(console, line)


def _rows(facts: dict[str, Any]) -> list[list[str]]:
    """Return a header and one row per iteration; columns without a number in any iteration are omitted."""
    iterations = facts["iterations"]
    single = {label: name for label, name in _COLUMNS.items() if any(name in row for row in iterations)}
    pairs = {label: name for label, name in _PAIRS.items() if any(f"branch/{name}" in row for row in iterations)}
    rows = [["iter", *single, *pairs]]
    for row in iterations:
        cells = [_number(row.get(name)) for name in single.values()]
        cells += [_number(row.get(f"base/{n}")) + "\n" + _number(row.get(f"branch/{n}")) for n in pairs.values()]
        rows.append([str(row["iteration"]), *cells])
    return rows


def _lines(facts: dict[str, Any]) -> list[str]:
    """Summarise what was replayed, what was changed, and the success of both ends."""
    changed = [f"{path}: {value['was']} -> {value['is']}" for path, value in facts["changed"].items()]
    lines = [f"{facts['base']}, from checkpoint {facts['start']} to {facts['stop']}", *(changed or ["nothing changed"])]
    for side, ends in facts["evaluation"].items():
        lines.append(f"{side}: success {ends['success']:.3f} [{ends['low']:.3f}, {ends['high']:.3f}]")
    difference = facts["difference"]
    if difference:
        lines.append(
            f"branch - base: {difference['mean']:+.3f} [{difference['low']:+.3f}, {difference['high']:+.3f}], "
            f"paired over {difference['num_prompts']} prompts"
        )
    return lines


def _ends(record: RunRecord, recorded: Mapping[int, StageKeys]) -> dict[str, str]:
    """Find 'base' and 'branch' -> key of the episodes of its last checkpoint; empty if they were not evaluated."""
    cell = record.environment
    names = {"base": f"evaluate_base:{cell}", "branch": f"evaluate:{cell}"}
    return {
        side: stages[name]["episodes"] for stages in recorded.values() for side, name in names.items() if name in stages
    }


def _difference(store: Store, ends: Mapping[str, str]) -> dict[str, float] | None:
    """Compute the branch's success minus the base's, paired by prompt, with its 95% interval."""
    if len(ends) < 2:
        return None
    base, branch = (
        counts_by_prompt(store.read_table("episodes", ends[side], columns=COUNTED))[0] for side in ("base", "branch")
    )
    difference = paired_comparison([(branch, base)])
    if difference is None:
        return None
    return {
        "mean": difference.mean,
        "low": difference.low,
        "high": difference.high,
        "num_prompts": difference.num_pairs,
    }


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}" if abs(value) < 0.1 else f"{value:.3g}"
