"""`gather_runs`: similarities and differences of several runs of one store.

runs/<run> + manifests + metrics of each -> ComparisonData -> comparison page
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.diagnostics.collapse import Verdict, diagnose
from starpo.ragen.evidence.diagnostics.series import Series
from starpo.ragen.evidence.report.data import read_series
from starpo.ragen.evidence.report.reading import Missing, Place, Reader, places, side_by_side
from starpo.ragen.evidence.report.times import stage_seconds
from starpo.ragen.evidence.report.words import settings_as_text
from starpo.ragen.evidence.updates import updates_before
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import Run, RunState
from starpo.schemas.manifest import Manifest

ABSENT = "absent"
"""Displayed value of a setting that a run does not have."""


@dataclass(frozen=True)
class Success:
    """Success on a run's own panel after some updates, with its 95% interval."""

    updates: int
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ComparedRun:
    """A run in a comparison.

    Attributes:
        run: Name, preset, configuration.
        state: Last recorded state; None if there is none.
        series: Every metric by name and iteration.
        verdict: Collapse verdict.
        artifacts: Places of its artifacts.
        panel: Evaluation panel and sampling, as text for equality comparison; None if it was not evaluated.
        seconds: Total work time of its stages, in whichever run it was done.
        missing: Parts that could not be read.
    """

    run: Run
    state: RunState | None
    series: dict[str, Series]
    verdict: Verdict
    artifacts: list[Place]
    panel: str | None
    seconds: float
    missing: list[Missing]

    @property
    def environment(self) -> str:
        """Name of the training environment."""
        return self.run.environment

    @property
    def successes(self) -> list[Success]:
        """Success on the panel of its own environment, in order of updates."""
        name = f"evaluation/{self.environment}/success"
        low, high = self.series.get(f"{name}_low", {}), self.series.get(f"{name}_high", {})
        points = self.series.get(name, {}).items()
        stages = {(place.iteration, place.stage) for place in self.artifacts}
        return [Success(updates_before(stages, i), value, low.get(i, value), high.get(i, value)) for i, value in points]


@dataclass(frozen=True)
class Difference:
    """A setting that differs: its dotted path, and its value in each run (`ABSENT` if a run does not have it)."""

    path: str
    values: list[str]


@dataclass(frozen=True)
class Shared:
    """An artifact that several of the runs use: computed once, counted in each.

    Attributes:
        stage: Stage that produced it.
        kind: Kind of the artifact.
        key: Key of the artifact.
        iterations: First iteration that uses it in each run; None if a run does not use it. [runs]
    """

    stage: str
    kind: str
    key: str
    iterations: list[int | None]


def gather_runs(store: Store, runs: Sequence[str]) -> list[ComparedRun]:
    """Read several runs, intact or damaged.

    Args:
        store: Store that holds the runs.
        runs: Names of the runs; duplicates are ignored.

    Raises:
        ConfigError: If there is nothing to compare.
        StoreError: If there is no such run, or its `run.json` cannot be read.
    """
    names = list(dict.fromkeys(runs))
    records = [store.runs.get(name) for name in names]  # fail on a wrong name before anything is read
    if not records:
        raise ConfigError("nothing to compare: name at least one run; see `ragen runs`")
    return [_read(store, record) for record in records]


def differences(runs: Sequence[ComparedRun]) -> tuple[list[Difference], int]:
    """Return the settings that differ, and the number of settings that are equal in all runs."""
    settings = [settings_as_text(run.run.stated) for run in runs]
    paths = list(dict.fromkeys(path for of_run in settings for path in of_run))
    found = [Difference(path, [of_run.get(path, ABSENT) for of_run in settings]) for path in paths]
    differing = [difference for difference in found if len(set(difference.values)) > 1]
    return differing, len(found) - len(differing)


def shared(runs: Sequence[ComparedRun]) -> list[Shared]:
    """Return the artifacts that at least two runs use, in order of first appearance."""
    first: list[dict[tuple[str, str], Place]] = []
    for run in runs:
        of_run: dict[tuple[str, str], Place] = {}
        for place in run.artifacts:
            of_run.setdefault((place.kind, place.key), place)
        first.append(of_run)
    found = []
    for kind, key in dict.fromkeys(name for of_run in first for name in of_run):
        at = [of_run.get((kind, key)) for of_run in first]
        used = [place for place in at if place is not None]
        if len(used) > 1:
            found.append(Shared(used[0].stage, kind, key, [place.iteration if place else None for place in at]))
    return found


def caveats(runs: Sequence[ComparedRun]) -> list[str]:
    """Return sentences on why some numbers of these runs are not comparable."""
    found = []
    environments = _by(runs, lambda run: run.environment)
    if len(environments) > 1:
        listed = "; ".join(f"{name}: {', '.join(of)}" for name, of in environments.items())
        found.append(
            f"These runs train on different environments ({listed}). Their success and returns belong to different "
            "tasks: compare the shapes of curves, not their heights."
        )
    elif len(_by([run for run in runs if run.panel], lambda run: str(run.panel))) > 1:
        found.append(
            "These runs were not evaluated alike: their panels of initial states, or the sampling on them, differ "
            "(see evaluation.* below), so their success rates are not comparable."
        )
    without = [run.run.name for run in runs if not run.successes]
    if without:
        found.append(f"No evaluation is stored for {', '.join(without)}.")
    unfinished = [run.run.name for run in runs if run.state is None or run.state.status != "completed"]
    if unfinished:
        found.append(f"Not completed, so the last point is not the end: {', '.join(unfinished)}.")
    return found


def _read(store: Store, record: Run) -> ComparedRun:
    reader = Reader(store)
    artifacts = places(reader.iterations(record))
    found = zip(artifacts, side_by_side(reader.manifest, artifacts), strict=True)
    manifests = {place: manifest for place, manifest in found if manifest is not None}
    series = read_series(reader, artifacts)
    return ComparedRun(
        run=record,
        state=reader.state(record),
        series=series,
        verdict=diagnose(series),
        artifacts=artifacts,
        panel=_panel(record, manifests),
        seconds=sum(sum(of_stage.values()) for of_stage in stage_seconds(manifests).values()),
        missing=reader.missing,
    )


def _panel(record: Run, manifests: Mapping[Place, Manifest]) -> str | None:
    own = f"evaluate:{record.config['environment']['type']}"
    for place, manifest in manifests.items():
        if place.kind == "episodes" and place.stage == own:
            settings = manifest.settings
            return f"{settings.get('panel')} {settings.get('evaluation')}"
    return None


def _by(runs: Sequence[ComparedRun], name: Callable[[ComparedRun], str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for run in runs:
        found.setdefault(name(run), []).append(run.run.name)
    return found
