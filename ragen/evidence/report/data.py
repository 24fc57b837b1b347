"""What pages show of a run: `read_run` reads what it measured, `gather` also the trajectories that a report embeds.

The embedded data is bounded: curves, filter decisions and stages of every iteration; trajectories of a sample of
iterations (requested ones, the last, the first, those at which a signal of collapse was raised, and evenly spaced
others), as many as fit; and episodes of the evaluations, sampled in the same way.

    runs/<run> + manifests + metrics, selection -> RunData -> live page
    RunData + turns, images, rewards, samples, episodes, episode_turns -> ReportData -> report
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from sys import intern

import pyarrow as pa

from starpo.ragen.agents.evaluation.comparison import PanelDifference
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.cost import Cost, cost
from starpo.ragen.evidence.reading import Missing, Place, Reader, places, side_by_side
from starpo.ragen.evidence.report.credit import credit_places
from starpo.ragen.evidence.report.decisions import Decision, read_decisions
from starpo.ragen.evidence.report.embedding import Embedded, TrajectoryBatch, embed, sampled
from starpo.ragen.evidence.report.evaluations import read_change, read_evaluation
from starpo.ragen.evidence.report.failures import Failures, failures_of
from starpo.ragen.evidence.report.images import read_images
from starpo.ragen.evidence.report.rollouts import read_outcomes, read_rollout
from starpo.ragen.evidence.report.trajectory import TrajectorySource
from starpo.ragen.learning.control.collapse import RunVerdict, diagnose
from starpo.ragen.learning.metrics.table import Series
from starpo.ragen.runs.counting import updates_by_iteration
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import RunRecord, RunState, StageKeys
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
class RunData:
    """What a run measured and decided.

    Attributes:
        run: Name, flow, preset, configuration.
        state: Last recorded state; None if there is none.
        store_url: URL of the store, without credentials.
        series: Every metric by name and iteration.
        verdict: Collapse verdict.
        change: Success of the last evaluation minus that of the first, on the panel of the run's environment; None if
            there are not two that can be read.
        artifacts: Places of all artifacts, by iteration and stage.
        manifests: Manifests of all readable artifacts, by place in the run.
        cost: Time, machine and tokens.
        updates: Updates done before each iteration.
        decisions: Decisions of the filter, by iteration and rank.
        stored_rollouts: Iterations with a rollout -> the places of its turns.
        collected: Iterations that were the first to use their rollout; with Online-k, a subset.
    """

    run: RunRecord
    state: RunState | None
    store_url: str
    series: dict[str, Series]
    verdict: RunVerdict
    change: PanelDifference | None
    artifacts: list[Place]
    manifests: dict[Place, Manifest]
    cost: Cost
    updates: dict[int, int]
    decisions: list[Decision]
    stored_rollouts: dict[int, list[Place]]
    collected: list[int]

    @property
    def num_iterations(self) -> int:
        """Number of iterations with a rollout."""
        return len(self.stored_rollouts)

    def places_of(self, iteration: int) -> list[Place]:
        """Return the places of the artifacts of an iteration."""
        return [place for place in self.artifacts if place.iteration == iteration]

    @property
    def stored_evaluations(self) -> dict[int, list[Place]]:
        """Iterations with an evaluation -> the places of its episodes; those of the training environment first."""
        main = f"evaluate:{self.run.config['environment']['type']}"
        return {
            iteration: sorted(of_iteration, key=lambda place: (place.stage != main, place.stage))
            for iteration, of_iteration in _by_iteration(self.artifacts, "episodes").items()
        }


@dataclass(frozen=True)
class ReportData(RunData):
    """A run as a report shows it.

    Attributes:
        failures: What goes wrong in its last rollout; None if that cannot be read.
        rollouts: Embedded training trajectories, by iteration.
        evaluations: Embedded evaluated episodes, by iteration; the training environment's first.
        images: Images that the embedded prompts show, as many as fit: digest -> PNG file in base64.
        num_images: Number of different images that the embedded prompts show.
        has_tokenizer: Whether prompts and the token boundaries of responses could be decoded.
        missing: Parts that could not be read.
    """

    failures: Failures | None
    rollouts: list[Embedded]
    evaluations: list[Embedded]
    images: dict[str, str]
    num_images: int
    has_tokenizer: bool
    missing: list[Missing]


def read_run(reader: Reader, record: RunRecord, iterations: Mapping[int, StageKeys]) -> RunData:
    """Read what a run measured and decided, finished or not, intact or damaged; the reader notes what is missing."""
    artifacts = places(iterations)
    manifests = reader.manifests(artifacts)
    series = _read_series(reader, artifacts)
    rollouts = _by_iteration(artifacts, "turns")
    evaluated = list(series.get(f"evaluation/{record.environment}/success", {}))
    return RunData(
        run=record,
        state=reader.state(record),
        store_url=reader.store.url,
        series=series,
        verdict=diagnose(series),
        change=read_change(reader, artifacts, record.environment, evaluated),
        artifacts=artifacts,
        manifests=manifests,
        cost=cost(reader, record, manifests),
        updates=updates_by_iteration(iterations),
        decisions=read_decisions(reader, artifacts),
        stored_rollouts=rollouts,
        collected=sorted(set(_first_uses(rollouts).values())),
    )


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
    _check_wanted(record, wanted, _by_iteration(places(iterations), "turns"))
    measured = read_run(reader, record, iterations)
    signalled = [signal.iteration for signal in measured.verdict.signals]
    source = TrajectorySource.of(store, record, iterations)
    first_use, collected = _first_uses(measured.stored_rollouts), measured.collected
    failures: dict[int, Failures] = {}

    def batches() -> Iterator[TrajectoryBatch]:
        others = sampled(collected, [first_use[i] for i in signalled if i in first_use], max_sampled_iterations)
        for iteration in dict.fromkeys([*wanted, *others]):
            on_batch(f"rollout of iteration {iteration}")
            of_iteration = measured.places_of(iteration)
            if batch := read_rollout(reader, [*of_iteration, *credit_places(reader, of_iteration)], source):
                if iteration == collected[-1]:
                    failures[iteration] = failures_of(iteration, read_outcomes(reader, of_iteration))
                yield batch

    def evaluations() -> Iterator[TrajectoryBatch]:
        by_iteration = measured.stored_evaluations
        for iteration in sampled(list(by_iteration), [*wanted, *signalled], max_sampled_iterations):
            for place in by_iteration[iteration]:
                on_batch(f"{place.stage} of iteration {iteration}")
                manifest = measured.manifests.get(place)
                of_iteration = measured.places_of(iteration)
                if manifest and (batch := read_evaluation(reader, place, manifest, of_iteration, source)):
                    yield batch

    embedded = embed(batches(), max_rollout_bytes, wanted)
    evaluated = embed(evaluations(), max_evaluation_bytes)
    stored_images = _by_iteration(measured.artifacts, "images")
    shown: dict[Place, list[str]] = {}
    for e in (*embedded, *evaluated):
        for place in stored_images.get(e.iteration, ()):
            shown.setdefault(place, []).extend(e.images)
    return ReportData(
        **{field.name: getattr(measured, field.name) for field in fields(measured)},
        failures=failures.get(collected[-1]) if collected else None,
        rollouts=sorted(embedded, key=lambda e: e.iteration),
        evaluations=sorted(evaluated, key=lambda e: e.iteration),
        images=read_images(reader, shown, max_image_bytes),
        num_images=len({digest for e in (*embedded, *evaluated) for digest in e.images}),
        has_tokenizer=source.transcriber is not None,
        missing=reader.missing,
    )


def _read_series(reader: Reader, artifacts: Sequence[Place]) -> dict[str, Series]:
    """Read every readable metric of a run, by name and iteration."""
    metrics = {place.key: place for place in artifacts if place.kind == "metrics"}

    def read(place: Place) -> list[tuple[str, int, float]]:
        return reader.kept(("metrics", place.key), lambda: _points(reader.table(place))) or []

    series: defaultdict[str, Series] = defaultdict(dict)
    for points in side_by_side(reader.store, read, metrics.values()):
        for name, iteration, value in points:
            series[name][iteration] = value
    return {name: {iteration: values[iteration] for iteration in sorted(values)} for name, values in series.items()}


def _points(metrics: pa.Table | None) -> list[tuple[str, int, float]] | None:
    """Return name, iteration and value; names are interned, so that those of many stages take the memory of one."""
    if metrics is None:
        return None
    names, iterations, values = (metrics[name].to_pylist() for name in ("name", "iteration", "value"))
    return list(zip(map(intern, names), iterations, values, strict=True))


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


def _check_wanted(run: RunRecord, wanted: Sequence[int], rollouts: Mapping[int, list[Place]]) -> None:
    for iteration in wanted:
        if iteration not in rollouts:
            known = f"{min(rollouts)} to {max(rollouts)}" if rollouts else "none yet"
            raise ConfigError(f"run {run.name} has no rollout at iteration {iteration}; it has {known}")
