"""Summary of an iteration: one line for Prefect's log, and Markdown for its artifacts."""

from collections.abc import Mapping

from starpo.flows.markdown import Verbatim, code, link, table, text
from starpo.ragen.store.records.runs import StageKeys

SHOWN = {
    "success (training)": "rollout/success_rate",
    "return": "reward/return_mean",
    "in-group reward std": "reward/in_group_std",
    "groups kept": "filter/num_kept",
    "rollouts played": "filter/num_attempts",
    "entropy (nats per token)": "rollout/entropy",
    "response length (tokens)": "rollout/response_length_mean",
    "format valid": "rollout/format_ok",
    "largest gradient norm": "update/gradient_norm_max",
    "clip fraction": "update/clip_fraction",
    "updates on this rollout": "online/num_uses",
    "rollouts collected early": "online/num_early_rollouts",
    "KL to the behaviour policy (nats per token)": "update/validity_after/kl",
    "KL to the reference policy (nats per token)": "update/kl_reference",
}

_BY_TAG = {
    "success": "rollout/success_rate",
    "return": "reward/return_mean",
    "in-group reward std": "reward/in_group_std",
    "groups kept": "filter/num_kept",
}
"""Metrics shown for each part of a mixture."""

_LINE = (
    ("success {:.3f}", "rollout/success_rate"),
    ("return {:.3g}", "reward/return_mean"),
    ("in-group reward std {:.3g}", "reward/in_group_std"),
    ("entropy {:.3g}", "rollout/entropy"),
    ("KL {:.3g}", "update/validity_after/kl"),
    ("largest gradient norm {:.3g}", "update/gradient_norm_max"),
    ("{:.0%} of responses well-formed", "rollout/format_ok"),
)


def iteration_line(iteration: int, iterations: int, metrics: Mapping[str, float], seconds: float) -> str:
    """Summarise an iteration in one line.

    Args:
        iteration: Updates completed before it.
        iterations: Total number of updates.
        metrics: The iteration's metrics.
        seconds: Mean duration of the last iterations, in seconds.
    """
    parts = [form.format(metrics[name]) for form, name in _LINE if name in metrics]
    parts += [kept] if (kept := _kept(metrics)) else []
    return f"iteration {iteration + 1} of {iterations}: {', '.join([*parts, f'{seconds:.1f} s per iteration'])}"


def _kept(metrics: Mapping[str, float]) -> str:
    names = ("filter/num_kept", "filter/num_groups")
    return (
        "{:.0f} of {:.0f} groups kept".format(*map(metrics.__getitem__, names)) if metrics.keys() >= set(names) else ""
    )


def iteration_markdown(
    run: str,
    iteration: int,
    iterations: int,
    metrics: Mapping[str, float],
    seconds: float,
    stages: StageKeys,
    store_url: str,
    address: str,
) -> str:
    """Format the main metrics of an iteration and the locations of its artifacts as Markdown.

    Args:
        run: The run's name.
        iteration: Updates completed before it.
        iterations: Total number of updates.
        metrics: The iteration's metrics.
        seconds: Mean duration of the last iterations, in seconds.
        stages: Stage -> kind -> key of its artifacts.
        store_url: URL of the store.
        address: URL of the run's folder, for a browser.
    """
    rows = [(label, f"{metrics[name]:.4g}") for label, name in SHOWN.items() if name in metrics]
    evaluations = [
        (
            name.removeprefix("evaluation/").removesuffix("/success"),
            f"{value:.3f}",
            f"{metrics.get(name + '_low', value):.3f} - {metrics.get(name + '_high', value):.3f}",
        )
        for name, value in sorted(metrics.items())
        if name.startswith("evaluation/") and name.endswith("/success")
    ]
    tags = [name.rpartition("/")[2] for name in sorted(metrics) if name.startswith("filter/num_kept/")]
    parts = [
        (tag, *(f"{metrics[f'{name}/{tag}']:.4g}" if f"{name}/{tag}" in metrics else "" for name in _BY_TAG.values()))
        for tag in tags
    ]
    by_tag = ["", *table(("part", *_BY_TAG), parts, right=range(1, len(_BY_TAG) + 1))] if parts else []
    columns = ("evaluated before this update on", "success", "95% interval")
    evaluated = [*table(columns, evaluations, right=[1, 2]), ""] if evaluations else []
    artifacts = [
        (stage, kind, Verbatim(code(f"{store_url}/{kind}/{key}")))
        for stage, keys in sorted(stages.items())
        for kind, key in keys.items()
    ]
    file = f"{iteration:05d}.json"
    left = iterations - iteration - 1
    return "\n".join(
        [
            f"# {text(run)}: iteration {iteration + 1} of {iterations}",
            "",
            f"{iteration_line(iteration, iterations, metrics, seconds)}; about {time_left(left * seconds)} left.",
            "",
            f"- why each group was kept or dropped: {code(f'ragen show {run} --iteration {iteration}')}",
            f"- curves, decisions and trajectories on one page: {code(f'ragen report {run}')}",
            f"- what it is doing now: {code(f'ragen follow {run}')}; to stop it: {code(f'ragen cancel {run}')}",
            "",
            *table(("metric", "value"), rows, right=[1]),
            *by_tag,
            "",
            *evaluated,
            *table(("stage", "artifact", "where"), artifacts),
            "",
            f"The record of this iteration: {link(file, f'{address}/iterations/{file}')}.",
        ]
    )


def time_left(seconds: float) -> str:
    """Format a time in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
