"""Summary of an iteration in one line, for the log."""

from collections.abc import Mapping

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
