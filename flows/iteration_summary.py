"""One markdown summary an iteration, for Prefect's artifacts."""

from flows.markdown import Verbatim, code, link, table, text
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
    artifacts = [
        (stage, kind, Verbatim(code(f"{store_url}/{kind}/{key}")))
        for stage, keys in sorted(stages.items())
        for kind, key in keys.items()
    ]
    file = f"{iteration:05d}.json"
    return "\n".join(
        [
            f"# {text(run)}: iteration {iteration + 1} of {iterations}",
            "",
            *table(("metric", "value"), rows, right=[1]),
            "",
            *table(("evaluated on", "success", "95% interval"), evaluations, right=[1, 2]),
            "",
            *table(("stage", "artifact", "where"), artifacts),
            "",
            f"The record of this iteration: {link(file, f'{address}/iterations/{file}')}. "
            f"{code(f'ragen report {run}')} draws the curves and the trajectories.",
        ]
    )
