"""Evaluation of whatever answers, and the comparison of all of it on the same initial states.

subjects, on -> read_evaluation -> Evaluation -> carry_out: runs of no iteration, missing cells -> SweepResult
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import fspath
from types import MappingProxyType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

from starpo.flows.api.subjects import SubjectRun, plan_subjects
from starpo.flows.console.start import train_config
from starpo.flows.console.stores import Address, open_store
from starpo.flows.console.terminal import Console, description_column, say
from starpo.flows.sweep_plan import SweepPlan, plan_sweep
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.store import Store
from starpo.ragen.studies.finish import CellsFailedError, finish
from starpo.ragen.studies.leaderboard import SweepResult
from starpo.ragen.studies.studies import Sweeps
from starpo.ragen.studies.sweep import Sweep, is_changeable


def evaluate(
    subjects: str | Sequence[str],
    on: str | Sequence[str] = (),
    overrides: Mapping[str, Any] = MappingProxyType({}),
    *,
    iterations: str | Sequence[int] = "last",
    temperatures: Sequence[float] = (),
    seeds: Sequence[int] = (0,),
    num_prompts: int | None = None,
    samples_per_prompt: int | None = None,
    name: str | None = None,
    store: Address | None = None,
    server: bool = False,
    quiet: bool = False,
) -> SweepResult:
    """Evaluate subjects on the same initial states; what is stored is not played again.

    Args:
        subjects: Runs (`RUN`, `RUN:40`), models as policy.name_or_path, `MODEL@http://SERVER/v1`, 'random', 'solver'.
        on: Presets, TOML files of settings, environments, files of questions, panels of a run (`RUN`), initial states
            of a rollout (`RUN:58`). Empty: the panels that the runs among the subjects have in common.
        overrides: Dotted path -> value: of runs, settings of the engine or of `evaluation`; of others, any setting, and
            where there are both, others alone take what runs cannot.
        iterations: Checkpoints of runs: 'last', 'all', 'ends', 'every:10', or their numbers.
        temperatures: Sampling temperatures. Empty: as the settings say.
        seeds: Seed n plays every initial state with the n-th batch of members.
        num_prompts: Initial states of a panel. None: as the settings say.
        samples_per_prompt: Episodes of an initial state and a seed. None: as the settings say.
        name: Name of the result. None to derive it from the subjects and the settings.
        store: Address of the store: a folder or an fsspec URL. None for the configured one (STARPO_STORE).
        server: Evaluate on the local Prefect server, which is started if necessary; False: in this process.
        quiet: Print nothing.

    Returns:
        The result, which is stored under its name.

    Raises:
        StarPOError: If there is no such subject or environment, panels cannot be compared, or an evaluation fails.
    """
    opened, console = open_store(store), Console(quiet=quiet)
    given = {
        "iterations": iterations if isinstance(iterations, str) else list(iterations),
        "temperatures": list(temperatures),
        "seeds": list(seeds),
        "num_prompts": num_prompts,
        "samples_per_prompt": samples_per_prompt,
    }
    texts, places = ([value] if isinstance(value, str) else list(value) for value in (subjects, on))
    evaluation = read_evaluation(opened, texts, places, overrides, given, name)
    address = None if store is None else fspath(store)
    return carry_out(opened, evaluation, console, address=address, is_local=not server)


@dataclass(frozen=True)
class Evaluation:
    """An evaluation as it was asked for.

    Attributes:
        sweep: Its specification.
        runs: Subject that is no run -> its runs of no iteration.
    """

    sweep: Sweep
    runs: dict[str, list[SubjectRun]]


def read_evaluation(
    store: Store,
    subjects: Sequence[str],
    on: Sequence[str],
    overrides: Mapping[str, Any],
    given: Mapping[str, Any],
    name: str | None = None,
) -> Evaluation:
    """Read who is evaluated on what (`plan_subjects`). Nothing is written.

    Args:
        store: Where the runs are.
        subjects: As for `evaluate`.
        on: As for `evaluate`.
        overrides: As for `evaluate`.
        given: Further settings of `Sweep`; those that are None are left out.
        name: Name of the result. None to derive it from the others.

    Raises:
        StarPOError: As for `evaluate`.
    """
    given = {setting: value for setting, value in given.items() if value is not None}
    sizes: dict[str, int] = {
        setting: given[setting] for setting in ("num_prompts", "samples_per_prompt") if setting in given
    }
    planned = plan_subjects(store, subjects, on, overrides, sizes)
    of_runs = {path: value for path, value in overrides.items() if is_changeable(path) or not planned.subjects}
    values = {
        "runs": planned.runs,
        "subjects": {subject: {run.name: run.panel for run in runs} for subject, runs in planned.subjects.items()},
        "environments": planned.environments,
        "panels": {panel: spec.model_dump(mode="json") for panel, spec in planned.panels.items()},
        "overrides": of_runs if planned.runs else {},
        **given,
    }
    values = {setting: value for setting, value in values.items() if value not in ({}, [])}
    digest = hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:8]
    names = [run.replace(":", "-") for run in planned.runs]
    names += [run.name for runs in planned.subjects.values() for run in runs]
    label = names[0][:110] if len(names) == 1 else "evaluation"
    sweep = Sweep.make({"name": name or f"{label}-{digest}", **values}, "starpo evaluate")
    return Evaluation(sweep, planned.subjects)


def carry_out(
    store: Store,
    evaluation: Evaluation,
    console: Console,
    *,
    address: str | None = None,
    is_local: bool = True,
    concurrency: int = 1,
) -> SweepResult:
    """Play what is missing of an evaluation, and store and return its result.

    Args:
        store: The store.
        evaluation: What is evaluated.
        console: Console for the progress.
        address: Address of the store, for a server. None for the configured one.
        is_local: Evaluate in this process. Otherwise on the local Prefect server, which is started if necessary.
        concurrency: Cells at a time, on the server.

    Raises:
        CellsFailedError: If a subject or a cell fails; the result of the others is stored.
        StarPOError: If all subjects fail, or panels cannot be compared.
    """
    failed: dict[str, StarPOError] = {}
    for subject, runs in evaluation.runs.items():
        try:
            for run in runs:
                state = store.runs.state(run.name)
                if state is None or state.status != "completed":
                    say(console, f"{subject}: run {run.name}")
                    train_config(
                        store, run.name, "evaluate", run.config, console, is_local=is_local, address=address,
                        written={"config": "config=..."},
                    )  # fmt: skip
        except StarPOError as error:
            failed[subject] = error
            say(console, f"failed: {subject}: {error}")
    others = {subject: runs for subject, runs in evaluation.sweep.subjects.items() if subject not in failed}
    if failed and not (others or evaluation.sweep.runs):
        raise next(iter(failed.values()))
    plan, studies = plan_sweep(store, evaluation.sweep.model_copy(update={"subjects": others})), Sweeps(store.url)
    if is_local or not plan.missing:
        studies.begin(plan.sweep)
        endings = _endings(store, plan, studies, console)
        finish(studies, plan, store, len(plan.missing), endings, logging.getLogger("starpo.run"))
    else:
        _follow_server(studies, plan, console, address, concurrency)
    if failed:
        lines = "".join(f"\n  {subject}: {error}" for subject, error in failed.items())
        raise CellsFailedError(
            f"{len(failed)} of {len(evaluation.runs)} subjects failed:{lines}\nThe result of the others is in "
            f"{studies.place(plan.name)}. Run it again to retry those that failed."
        )
    return studies.get(plan.name)


def _follow_server(studies: Sweeps, plan: SweepPlan, console: Console, address: str | None, concurrency: int) -> None:
    from starpo.flows.console.studies import follow_study

    def look() -> tuple[Mapping[str, str], str]:
        stored = {planned.label for planned in plan.cells if planned.is_stored}
        return dict.fromkeys([*stored, *studies.measured(plan.name)], "is measured"), f"evaluation {plan.name}"

    parameters = {
        "sweep": as_parameter(plan.sweep),
        "store": address,
        "concurrency": concurrency if concurrency > 1 else None,
    }
    follow_study(studies, plan, plan.sweep, "eval-sweep/custom", parameters, look, console, {"sweep": "sweep=..."})


def as_parameter(sweep: Sweep) -> dict[str, Any]:
    """Return a sweep as a parameter of the flow, as JSON: what differs from the defaults; environments say all."""
    stated = sweep.model_dump(mode="json", exclude_defaults=True)
    return stated | ({"panels": sweep.model_dump(mode="json")["panels"]} if sweep.panels else {})


def _endings(store: Store, plan: SweepPlan, studies: Sweeps, console: Console) -> Iterator[tuple[str, str | None]]:
    measured = {planned.label: planned.work.keys for planned in plan.cells if planned.is_stored}
    studies.name_cells(plan.name, measured)
    columns = (SpinnerColumn(), description_column(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    if not plan.missing:
        return
    with (
        ModelPlacement() as placement,
        placement.learner.restored(store, plan.dropped(store)),
        Progress(*columns, console=console, disable=not console.is_terminal) as bar,
    ):
        row = bar.add_task("", total=len(plan.missing))
        for planned in plan.missing:
            bar.update(row, description=planned.label)
            error = None
            try:
                planned.work.carry_out(store, placement)
            except StarPOError as failure:
                error = f"{type(failure).__name__}: {without_secrets(str(failure))}"
            else:
                measured[planned.label] = planned.work.keys
                studies.name_cells(plan.name, measured)
            bar.advance(row)
            yield planned.label, error
