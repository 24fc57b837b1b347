"""One markdown summary an iteration, for Prefect's artifacts."""

from ragen.store.runs import StageKeys

SHOWN = {
    "success (training)": "rollout/success_rate",
    "return": "reward/return_mean",
    "in-group reward std": "reward/in_group_std",
    "groups kept": "filter/num_kept",
    "entropy (nats a token)": "rollout/entropy",
    "response length (tokens)": "rollout/response_length_mean",
    "format valid": "rollout/format_ok",
    "gradient norm": "update/gradient_norm_max",
    "clip fraction": "update/clip_fraction",
    "updates on this rollout": "online/num_uses",
    "rollouts collected early": "online/num_early_rollouts",
    "KL to the behaviour policy (nats a token)": "update/validity_after/kl",
}


def iteration_markdown(
    run: str,
    iteration: int,
    iterations: int,
    metrics: dict[str, float],
    stages: StageKeys,
    store_url: str,
    address: str,
) -> str:
    """Headline numbers of an iteration and where its artifacts are.

    Args:
        run: The run's name.
        iteration: Updates done before it.
        iterations: Updates in all.
        metrics: The newest value of every metric; one that was not measured is left out.
        stages: What it made.
        store_url: Where the artifacts are.
        address: Of the run's folder, as a browser takes it.
    """
    rows = [f"| {label} | {metrics[name]:.4g} |" for label, name in SHOWN.items() if name in metrics]
    evaluations = [
        f"| {name.removeprefix('evaluation/').removesuffix('/success')} | {value:.3f} "
        f"| {metrics.get(name + '_low', value):.3f} - {metrics.get(name + '_high', value):.3f} |"
        for name, value in sorted(metrics.items())
        if name.startswith("evaluation/") and name.endswith("/success")
    ]
    artifacts = [
        f"| {stage} | {kind} | `{store_url}/{kind}/{key}` |"
        for stage, keys in sorted(stages.items())
        for kind, key in keys.items()
    ]
    return "\n".join(
        [
            f"# {run}: iteration {iteration + 1} of {iterations}",
            "",
            "| metric | value |",
            "| --- | ---: |",
            *rows,
            "",
            "| evaluated on | success | 95% interval |",
            "| --- | ---: | ---: |",
            *evaluations,
            "",
            "| stage | artifact | where |",
            "| --- | --- | --- |",
            *artifacts,
            "",
            f"The record of this iteration: [{iteration:05d}.json]({address}/iterations/{iteration:05d}.json). "
            f"`ragen report {run}` draws the curves and the trajectories.",
        ]
    )
