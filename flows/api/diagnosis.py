"""Diagnosis of a stored run: signs of a collapse in its metrics, and probes of its stored checkpoints.

run -> missing metrics and probes, computed and stored -> series -> verdict, path over RAGEN-2's plane
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from starpo.ragen.config.load import recorded_config
from starpo.ragen.core.errors import ConfigError, StarPOError, one_line
from starpo.ragen.evidence.diagnostics.plane import Point, path
from starpo.ragen.learning.control.collapse import RunVerdict, diagnose
from starpo.ragen.learning.metrics.table import Series, metric_series
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Work
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import played_data, recorded_data
from starpo.ragen.store.keeping.checkpoints import policies
from starpo.ragen.store.keeping.recipe import failing_once
from starpo.ragen.store.records.runs import StageKeys
from starpo.tasks import diagnose as diagnose_stage
from starpo.tasks.gradient_probe import gradient_probe
from starpo.tasks.probe import probe

DEFAULT_EVERY = 10
"""Iterations between probes, for a run whose settings have no probes."""
_DIGEST = re.compile(r"[0-9a-f]{12,}")


@dataclass(frozen=True)
class Diagnosis:
    """Diagnosis of a run.

    Attributes:
        run: The run's name.
        series: Metric -> iteration -> value.
        verdict: Whether it is collapsing, and the evidence.
        points: Results of its probes.
        num_computed: Number of stages computed for this; they are stored and reused the next time.
        num_failed: Number of stages that could not be computed.
        not_computed: Why stages could not be computed, or there is nothing to compute -> how many.
    """

    run: str
    series: dict[str, Series]
    verdict: RunVerdict
    points: list[Point]
    num_computed: int
    num_failed: int
    not_computed: dict[str, int]


def diagnose_run(
    store: Store,
    run: str,
    every: int | None = None,
    with_gradients: bool = False,
    on_stage: Callable[[int, int], None] = lambda done, total: None,
) -> Diagnosis:
    """Diagnose a run, finished or not, of this release or another, trained here or imported.

    Args:
        store: Where the run is stored; results are stored there too.
        run: The run's name.
        every: Probe every n-th iteration; 0 for no probes. None for the interval of its settings, or every tenth.
        with_gradients: Also measure gradients at the probed iterations.
        on_stage: Called with the number of stages done and their total.

    Raises:
        StoreError: If there is no such run.
        ConfigError: If it has no rollout.
    """
    recorded = store.runs.iterations(store.runs.get(run).name)
    if not any("rollout" in stages for stages in recorded.values()):
        raise ConfigError(f"run '{run}' has no rollout, so there is nothing to diagnose")
    not_computed: dict[str, int] = {}
    try:
        works = list(_missing(store, run, recorded, every, with_gradients))
    except ConfigError as error:  # settings of another release: stored metrics can still be judged
        works, not_computed = [], {str(error): 1}
    keys = [keys["metrics"] for stages in recorded.values() for keys in stages.values() if "metrics" in keys]
    num_computed, failures = 0, list[str]()
    with failing_once(), ModelPlacement() as placement:
        for number, work in enumerate(works):
            on_stage(number, len(works))
            try:
                is_new = not work.is_stored(store)
                keys.append(work.carry_out(store, placement)["metrics"])
                num_computed += is_new
            except StarPOError as error:
                failures.append(one_line(error))
    not_computed |= _by_kind(failures)
    if every != 0 and not policies(store, run):
        not_computed["it holds no checkpoint, so its reasoning cannot be scored: it was not trained here"] = 1
    series = metric_series(store.read_table("metrics", key) for key in dict.fromkeys(keys))
    return Diagnosis(run, series, diagnose(series), path(series), num_computed, len(failures), not_computed)


def _by_kind(failures: Sequence[str]) -> dict[str, int]:
    """Count failures that differ only in keys and other digests under the first of them."""
    first: dict[str, str] = {}
    return dict(Counter(first.setdefault(_DIGEST.sub("", failure), failure) for failure in failures))


def _missing(
    store: Store, run: str, recorded: Mapping[int, StageKeys], every: int | None, with_gradients: bool
) -> Iterator[Work]:
    """Yield the metrics and probes that the run did not record."""
    config = recorded_config(run, store.runs.get(run).config, "Its own metrics are judged; probes need its settings")
    checkpoints = policies(store, run)
    every = (config.diagnostics.probe_every or DEFAULT_EVERY) if every is None else every
    for iteration, stages in recorded.items():
        data: dict[str, str] = {}
        if "variance_filter" in stages:
            data = recorded_data(stages)
            if "diagnose" not in stages:
                max_attempts = config.at(iteration).rollout.max_attempts
                yield diagnose_stage.diagnose(iteration, max_attempts, config.tags, **played_data(data))
        if not every or iteration % every or iteration not in checkpoints:
            continue
        keys = checkpoints[iteration], checkpoints[0]
        if "rollout" in stages and "probe" not in stages:
            yield probe(config.at(iteration), iteration, *keys, stages["rollout"]["turns"])
        if with_gradients and "variance_filter" in stages and "gradient_probe" not in stages:
            yield gradient_probe(config.at(iteration), iteration, *keys, **data)
