"""`ragen online-k`: how off-policy updates were, by how often their rollout had been used."""

from typing import Annotated, Any

import typer

from starpo.flows.cli.options import JsonOption, StoreOption, open_store
from starpo.flows.console.listing import evaluation_curve
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json
from starpo.ragen.core.counts import counted
from starpo.ragen.evidence.audit.named import matching_runs
from starpo.ragen.evidence.diagnostics.online import Reuse, by_reuse, reuses
from starpo.ragen.store import Store

_COLUMNS = {
    "reuse": "reuse",
    "num_updates": "updates",
    "ratio_q01": "ratio q01",
    "ratio_q50": "q50",
    "ratio_q99": "q99",
    "effective_sample_size_tokens": "ESS tokens",
    "effective_sample_size_trajectories": "ESS traj.",
    "clip_share": "clip share",
    "kl": "KL",
    "clip_fraction": "clipped in update",
}
"""Columns of the table; `--json` also has the other quantiles."""

_THRESHOLDS = ("max_kl", "min_effective_sample_size")
_LEGEND = (
    "reuse: number of earlier updates on the rollout. Before the first step of each update, the policy "
    "against the one that sampled: quantiles of the ratio over tokens; ESS, the effective sample size as a share "
    "of tokens and of trajectories (1: as good as fresh); clip share, tokens that PPO's clip would mask; "
    "KL(behaviour || policy), nats per token. Last column: the tokens that it did mask. The clipped ratio is to the "
    "policy that the title names (update.ratio_to): at the update's start, or the one that sampled (behaviour). "
    "Means over the run's updates of that reuse."
)


def online_k(
    runs: Annotated[
        list[str], typer.Argument(help="Names of runs, or patterns such as 'online-k.*'; several are compared.")
    ],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how off-policy each reuse of a rollout was: ratios, effective sample size, clip share, KL."""
    print_online(open_store(store), runs, as_json)


def print_online(store: Store, runs: list[str], as_json: bool) -> None:
    """Print the validity metrics of every run's reuses; with several runs also a comparison.

    Args:
        store: Where the runs are stored.
        runs: Names, or patterns such as 'online-k.*'.
        as_json: Print JSON.

    Raises:
        StoreError: If there is no such run, or no run matches a pattern.
        ConfigError: If a run has no update, or an update by a release that did not measure this.
    """
    found = {run: reuses(store, run) for run in matching_runs(store, runs)}
    summaries = [_summary(store, run, updates) for run, updates in found.items()]
    if as_json:
        facts = [
            {**summary, "by_reuse": by_reuse(updates), "updates": [vars(update) for update in updates]}
            for summary, updates in zip(summaries, found.values(), strict=True)
        ]
        print_json(facts)
        return
    console = Console()
    for summary, updates in zip(summaries, found.values(), strict=True):
        _print_run(console, summary, by_reuse(updates))
    if len(summaries) > 1:
        _print_comparison(console, summaries)
    console.print(_LEGEND)


def _summary(store: Store, run: str, updates: list[Reuse]) -> dict[str, Any]:
    """Summarise a run in one row."""
    record = store.runs.get(run)
    curve = [point["success"] for point in evaluation_curve(store, record)]
    last = by_reuse(updates)[-1]
    return {
        "run": run,
        "seed": record.config.get("seed"),
        "online_k": record.config.get("online_k", 1),
        "ratio_to": record.config.get("update", {}).get("ratio_to", "update_start"),
        "max_kl": record.config.get("online_max_kl"),
        "min_effective_sample_size": record.config.get("online_min_effective_sample_size"),
        "num_updates": len(updates),
        "num_rollouts": sum(update.reuse == 0 for update in updates),
        "num_early_rollouts": sum(update.is_early for update in updates),
        "last_reuse_effective_sample_size": last["effective_sample_size_trajectories"],
        "last_reuse_kl": last["kl"],
        "success_first": curve[0] if curve else None,
        "success_best": max(curve) if curve else None,
        "success_last": curve[-1] if curve else None,
    }


def _print_run(console: Console, summary: dict[str, Any], rows: list[dict[str, float]]) -> None:
    title = f"{summary['run']}: online_k = {summary['online_k']}, ratio_to = {summary['ratio_to']}"
    shown = [{label: _number(row.get(name)) for name, label in _COLUMNS.items()} for row in rows]
    print_table(console, shown, title=title, numbers=_COLUMNS.values())
    limits = [f"{name} {summary[name]}" for name in _THRESHOLDS if summary[name] is not None]
    console.print(
        f"{counted(summary['num_updates'], 'update')} on {counted(summary['num_rollouts'], 'rollout')}; "
        f"{summary['num_early_rollouts']} of these were collected early "
        f"({', '.join(limits) if limits else 'no threshold is set'})",
    )


def _print_comparison(console: Console, summaries: list[dict[str, Any]]) -> None:
    shown = {
        "online_k": "k",
        "ratio_to": "ratio to",
        "seed": "seed",
        "last_reuse_effective_sample_size": "ESS at\nlast\nreuse",
        "last_reuse_kl": "KL at\nlast\nreuse",
        "success_first": "first",
        "success_best": "best",
        "success_last": "last",
        "run": "run",
    }
    ordered = sorted(summaries, key=_order)
    rows = [{label: _number(summary[name]) for name, label in shown.items()} for summary in ordered]
    numbers = [label for name, label in shown.items() if name != "run"]
    print_table(console, rows, title="Online-k; first, best, last: success", numbers=numbers)


def _order(summary: dict[str, Any]) -> tuple[int, bool, int]:
    return summary["online_k"], summary["ratio_to"] != "update_start", summary["seed"] or 0


def _number(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)
