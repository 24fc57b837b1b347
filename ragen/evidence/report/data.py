"""`gather`: reads everything a report shows from a store, by the name of the run.

The embedded data is bounded: curves, filter decisions and stages of every iteration; trajectories of a sample of
iterations (requested ones, the last, the first, those at which a signal of collapse was raised, and evenly spaced
others), as many as fit; and episodes of the evaluations, sampled in the same way.

    runs/<run> + manifests + metrics, selection, turns, images, rewards, samples, episodes -> ReportData -> page
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from starpo.ragen.agents.evaluation.comparison import PanelDifference
from starpo.ragen.agents.prompting.transcript import Transcriber
from starpo.ragen.core.errors import ConfigError, StarPOError
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.evidence.cost import Cost, cost
from starpo.ragen.evidence.reading import Missing, Place, Reader, places, side_by_side
from starpo.ragen.evidence.report.boards import read_settings
from starpo.ragen.evidence.report.decisions import Decision, read_decisions
from starpo.ragen.evidence.report.embedding import Embedded, TrajectoryBatch, embed, sampled
from starpo.ragen.evidence.report.evaluations import read_change, read_evaluation
from starpo.ragen.evidence.report.failures import Failures, failures_of
from starpo.ragen.evidence.report.images import read_images
from starpo.ragen.evidence.report.tokens import TokenLengths
from starpo.ragen.evidence.report.trajectories import read_outcomes, read_rollout
from starpo.ragen.learning.control.collapse import RunVerdict, diagnose
from starpo.ragen.learning.metrics.table import Series, metric_series
from starpo.ragen.runs.counting import updates_by_iteration
from starpo.ragen.runs.stored_policy import checkpoints_of, find_tokenizer
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import RunRecord, RunState
from starpo.schemas.manifest import Manifest

MAX_ROLLOUT_BYTES = 8 * 2**20
"""Maximum compressed size of all embedded training trajectories; a third more as base64 in the page."""
MAX_EVALUATION_BYTES = 3 * 2**20
"""The same for evaluated episodes."""
MAX_IMAGE_BYTES = 6 * 2**20
"""Maximum size of all images in the page, in base64: 1,000 of 6 kB."""
MAX_SAMPLED_ITERATIONS = 20
"""Maximum number of iterations with embedded training trajectories, and likewise with embedded evaluations."""


@dataclass(frozen=True)
class ReportData:
    """A run as a report shows it.

    Attributes:
        run: Name, flow, preset, configuration.
        state: Last recorded state; None if there is none.
        store_url: URL of the store, without credentials.
        series: Every metric by name and iteration.
        verdict: Collapse verdict.
        change: Success of the last evaluation minus that of the first, on the panel of the run's environment; None if
            there are not two that can be read.
        manifests: Manifests of all readable artifacts, by place in the run.
        cost: Time, machine and tokens.
        updates: Updates done before each iteration.
        failures: What goes wrong in its last rollout; None if that cannot be read.
        decisions: Decisions of the filter, by iteration and rank.
        rollouts: Embedded training trajectories, by iteration.
        evaluations: Embedded evaluated episodes, by iteration; the training environment's first.
        images: Images that the embedded prompts show, as many as fit: digest -> PNG file in base64.
        num_images: Number of different images that the embedded prompts show.
        num_iterations: Number of iterations with a rollout.
        collected: Iterations that were the first to use their rollout; with Online-k, a subset.
        has_tokenizer: Whether prompts and the token boundaries of responses could be decoded.
        missing: Parts that could not be read.
    """

    run: RunRecord
    state: RunState | None
    store_url: str
    series: dict[str, Series]
    verdict: RunVerdict
    change: PanelDifference | None
    manifests: dict[Place, Manifest]
    cost: Cost
    updates: dict[int, int]
    failures: Failures | None
    decisions: list[Decision]
    rollouts: list[Embedded]
    evaluations: list[Embedded]
    images: dict[str, str]
    num_images: int
    num_iterations: int
    collected: list[int]
    has_tokenizer: bool
    missing: list[Missing]


def gather(
    store: Store,
    run: str,
    *,
    wanted: Sequence[int] = (),
    max_rollout_bytes: int = MAX_ROLLOUT_BYTES,
    max_evaluation_bytes: int = MAX_EVALUATION_BYTES,
    max_image_bytes: int = MAX_IMAGE_BYTES,
    max_sampled_iterations: int = MAX_SAMPLED_ITERATIONS,
    on_batch: Callable[[str], None] = lambda _: None,
) -> ReportData:
    """Read a run, finished or not, intact or damaged: unreadable parts are listed in `ReportData.missing`.

    Args:
        store: Store that holds the run.
        run: Name of the run.
        wanted: Iterations whose trajectories are embedded first.
        max_rollout_bytes: Maximum compressed size of the embedded training trajectories, apart from wanted iterations.
        max_evaluation_bytes: Maximum compressed size of the embedded episodes.
        max_image_bytes: Maximum size of the images in base64.
        max_sampled_iterations: Maximum number of iterations to sample, for each of the two.
        on_batch: Called with a description of the trajectories that are read next.

    Raises:
        StoreError: If there is no such run, or its `run.json` cannot be read.
        ConfigError: If it has no rollout at a wanted iteration.
    """
    record, reader = store.runs.get(run), Reader(store)
    iterations = reader.iterations(record)
    artifacts = places(iterations)
    manifests = reader.manifests(artifacts)
    series = _read_series(reader, artifacts)
    verdict = diagnose(series)
    signalled = [signal.iteration for signal in verdict.signals]
    tokenizer = find_tokenizer(store, checkpoints_of(store, iterations))
    token_lengths = TokenLengths(tokenizer.backend_tokenizer) if tokenizer else None
    transcriber = Transcriber(tokenizer, record.config.get("agent", {})) if tokenizer else None
    settings = _drawn_settings(record)
    rollouts = _by_iteration(artifacts, "turns")
    _check_wanted(record, wanted, rollouts)
    first_use = _first_uses(rollouts)
    collected = sorted(set(first_use.values()))
    failures: dict[int, Failures] = {}

    def batches() -> Iterator[TrajectoryBatch]:
        others = sampled(collected, [first_use[i] for i in signalled if i in first_use], max_sampled_iterations)
        for iteration in dict.fromkeys([*wanted, *others]):
            on_batch(f"rollout of iteration {iteration}")
            of_iteration = [place for place in artifacts if place.iteration == iteration]
            if batch := read_rollout(reader, of_iteration, settings, token_lengths, transcriber):
                if iteration == collected[-1]:
                    failures[iteration] = failures_of(iteration, read_outcomes(reader, of_iteration))
                yield batch

    def evaluations() -> Iterator[TrajectoryBatch]:
        by_iteration = _by_iteration(artifacts, "episodes")
        main_stage = f"evaluate:{record.config['environment']['type']}"
        for iteration in sampled(list(by_iteration), [*wanted, *signalled], max_sampled_iterations):
            for place in sorted(by_iteration[iteration], key=lambda place: (place.stage != main_stage, place.stage)):
                on_batch(f"{place.stage} of iteration {iteration}")
                manifest = manifests.get(place)
                if manifest and (batch := read_evaluation(reader, place, manifest)):
                    yield batch

    embedded = embed(batches(), max_rollout_bytes, wanted)
    stored_images = _by_iteration(artifacts, "images")
    shown = {place: e.images for e in embedded for place in stored_images.get(e.iteration, ())}
    return ReportData(
        run=record,
        state=reader.state(record),
        store_url=store.url,
        series=series,
        verdict=verdict,
        change=read_change(
            reader, artifacts, record.environment, list(series.get(f"evaluation/{record.environment}/success", {}))
        ),
        manifests=manifests,
        cost=cost(store, record, manifests),
        updates=updates_by_iteration(iterations),
        failures=failures.get(collected[-1]) if collected else None,
        decisions=read_decisions(reader, artifacts),
        rollouts=sorted(embedded, key=lambda e: e.iteration),
        evaluations=sorted(embed(evaluations(), max_evaluation_bytes), key=lambda e: e.iteration),
        images=read_images(reader, shown, max_image_bytes),
        num_images=len({digest for e in embedded for digest in e.images}),
        num_iterations=len(rollouts),
        collected=collected,
        has_tokenizer=tokenizer is not None,
        missing=reader.missing,
    )


def _read_series(reader: Reader, artifacts: Sequence[Place]) -> dict[str, Series]:
    """Read every readable metric of a run, by name and iteration."""
    metrics = {place.key: place for place in artifacts if place.kind == "metrics"}
    return metric_series(
        table for table in side_by_side(reader.store, reader.table, metrics.values()) if table is not None
    )


def _by_iteration(artifacts: Sequence[Place], kind: str) -> dict[int, list[Place]]:
    by_iteration: dict[int, list[Place]] = {}
    for place in artifacts:
        if place.kind == kind:
            by_iteration.setdefault(place.iteration, []).append(place)
    return by_iteration


def _first_uses(rollouts: Mapping[int, list[Place]]) -> dict[int, int]:
    """Map each iteration to the first that used its rollout: with Online-k, several iterations share one."""
    first: dict[str, int] = {}
    return {
        iteration: min(first.setdefault(place.key, iteration) for place in of_iteration)
        for iteration, of_iteration in rollouts.items()
    }


def _drawn_settings(run: RunRecord) -> EnvironmentSettings | None:
    try:
        return read_settings(run.config["environment"])
    except (KeyError, StarPOError, ValidationError):
        return None


def _check_wanted(run: RunRecord, wanted: Sequence[int], rollouts: Mapping[int, list[Place]]) -> None:
    for iteration in wanted:
        if iteration not in rollouts:
            known = f"{min(rollouts)} to {max(rollouts)}" if rollouts else "none yet"
            raise ConfigError(f"run {run.name} has no rollout at iteration {iteration}; it has {known}")
