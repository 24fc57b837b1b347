"""`Run`: a stored run in a script or a notebook. What it does is what the commands of the same names do.

store, name -> open_run -> Run -> Arrow tables, folders, metrics
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from starpo.flows.console.stores import Address, open_store
from starpo.ragen.config.explanation import near
from starpo.ragen.config.load import apply_overrides, recorded_config
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.store import Store
from starpo.ragen.store.records.run import RunState

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

NO_OVERRIDES: Mapping[str, Any] = MappingProxyType({})


def open_run(name: str, store: Address | None = None) -> "Run":
    """Open a run.

    Args:
        name: The run's name.
        store: Address of the store: a folder or an fsspec URL. None for the configured one (STARPO_STORE).

    Raises:
        StoreError: If there is no such run; the message suggests similar names.
    """
    opened = open_store(store)
    return Run(opened, opened.runs.get(name).name)


def runs(store: Address | None = None) -> list["Run"]:
    """Return all runs of a store, newest first. See `open_run` for the store.

    Raises:
        StoreError: If there is no store at a given address; the configured one is only created by its first run.
    """
    opened = open_store(store)
    if store is not None:
        opened.expect()
    return [Run(opened, record.name) for record in opened.runs.list()]


def sql(query: str, *runs: str, store: Address | None = None) -> pa.Table:
    """Query runs in SQL; `starpo sql --views` lists the views and their columns.

    Args:
        query: One SELECT in DuckDB's SQL.
        runs: Names of runs, or patterns such as `sokoban-*`.
        store: As for `open_run`.

    Raises:
        StoreError: If there is no such run.
        QueryError: If the query is malformed, names an unknown view or column, or would write.
    """
    if not runs:
        raise ConfigError("name the runs to query: sql(query, 'my-run', 'sokoban-*')")
    return _queried(open_store(store), runs, query)


def _queried(store: Store, runs: Sequence[str], query: str) -> pa.Table:
    from starpo.ragen.evidence.audit.named import matching_runs
    from starpo.ragen.evidence.audit.stored import open_database

    with open_database(store, matching_runs(store, runs)) as database:
        return database.query(query)


class Run:
    """A stored run. Nothing is read before it is asked for, and nothing is kept, so a running one is always current.

    Attributes:
        name: Its name.
        store: The store that holds it.
    """

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name

    def __repr__(self) -> str:
        return f"Run({self.name!r}, store={self.store.url!r})"

    @property
    def settings(self) -> StarPOConfig:
        """Its settings.

        Raises:
            ConfigError: If they are those of another release.
        """
        return recorded_config(self.name, self.store.runs.get(self.name).config, "Open runs of this release")

    @property
    def state(self) -> RunState | None:
        """Its status, the message beside it, and its newest numbers; None before it has begun."""
        return self.store.runs.state(self.name)

    @property
    def iterations(self) -> tuple[int, ...]:
        """The iterations recorded so far. The last one of a finished run only evaluates its last checkpoint."""
        return tuple(self.store.runs.iterations(self.name))

    def table(self, view: str, iteration: int | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Return one of its tables, checked against its digests; `polars.from_arrow` makes a frame of it.

        Args:
            view: A view of `starpo sql --views`: the datasets turns, rewards, selection, samples, metrics and episodes,
                and what is derived from them, such as trajectories.
            iteration: Updates before it. None for all iterations; the column `iteration` tells them apart.
            columns: Columns, in this order. None for all.

        Raises:
            ConfigError: If there is no such view, column or iteration.
            ArtifactMissingError: If its data are no longer stored.
            ArtifactDamagedError: If they are not what was written.
        """
        from starpo.flows.console.listing import recorded_stages
        from starpo.ragen.evidence.audit.database import described_views
        from starpo.ragen.evidence.audit.stored import open_database

        views = {name: schema.names for name, schema in described_views().items()}
        if view not in views:
            raise ConfigError(f"there is no table '{view}'{near(view, views)}; known: {', '.join(views)}")
        for column in columns or ():
            if column not in views[view]:
                known = ", ".join(views[view])
                raise ConfigError(f"table '{view}' has no column '{column}'{near(column, views[view])}; known: {known}")
        if iteration is not None:
            recorded_stages(self.store, self.name, iteration)
        names = ", ".join(f'"{column}"' for column in columns or views[view])
        with open_database(self.store, [self.name], should_verify=True, iteration=iteration) as database:
            return database.query(f"select {names} from {view}")

    def sql(self, query: str) -> pa.Table:
        """Query this run in SQL. See `sql`."""
        return _queried(self.store, [self.name], query)

    def trajectory(self, iteration: int, trajectory: str) -> list[dict[str, Any]]:
        """Return the turns of a trajectory, such as `g0003-0`: rows of the table `turns`, with text.

        Each also has its `prompt`, the messages that it added to the context (None if no checkpoint with the run's
        tokenizer is stored), and its `reward` by component.

        Raises:
            ConfigError: If there is no such iteration or trajectory.
        """
        from starpo.flows.console.trajectory import read_trajectory

        return read_trajectory(self.store, self.name, iteration, trajectory)

    def checkpoint(self, iteration: int | None = None, output: str | PathLike[str] | None = None) -> Path:
        """Return a folder with a checkpoint, which transformers can load. A dropped checkpoint is derived again.

        Args:
            iteration: Iterations before it; 0 is the first checkpoint. None for the last one.
            output: Folder to write it to, new or empty. None for the one in the store, which must not be changed.

        Raises:
            ConfigError: If there is no such checkpoint.
            ArtifactMissingError: If it is not kept and cannot be derived.
        """
        from starpo.flows.api.checkpoint_export import export_checkpoint, find_checkpoint

        number, _ = find_checkpoint(self.store, self.name, iteration)
        facts = export_checkpoint(self.store, self.name, number, None if output is None else Path(output))
        return Path(facts["folder"])

    def load_policy(self, iteration: int | None = None) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
        """Load a checkpoint as a transformers model, in float32 on the CPU, and its tokenizer. See `checkpoint`."""
        from starpo.ragen.agents.policy.load import load_policy

        return load_policy(self.checkpoint(iteration))

    def evaluate(self, iteration: int | None = None, overrides: Mapping[str, Any] = NO_OVERRIDES) -> dict[str, float]:
        """Evaluate a checkpoint on the run's panels, and store the result; what is stored is not played again.

        `starpo.evaluate` compares several, and others than runs.

        Args:
            iteration: Iterations before the checkpoint. None for the last one.
            overrides: Dotted path -> value: `evaluation.temperature`, other settings of `evaluation`, or the engine.

        Returns:
            Name -> value, such as `evaluation/sokoban/success` with `..._low` and `..._high`, its 95% interval.

        Raises:
            ConfigError: If there is no such checkpoint, or another setting is to change.
        """
        from starpo.flows.api.checkpoint_export import find_checkpoint
        from starpo.flows.api.evaluation import evaluate
        from starpo.ragen.runs.metrics import stored_metrics

        number, _ = find_checkpoint(self.store, self.name, iteration)
        result = evaluate(f"{self.name}:{number}", (), overrides, store=self.store.address, quiet=True)
        return {name: value for key in result.cells.values() for name, value in stored_metrics(self.store, key).items()}

    def play(self, iteration: int | None = None, overrides: Mapping[str, Any] = NO_OVERRIDES) -> pa.Table:
        """Play the rollout that the run would play from a checkpoint, and store it; what is stored is not played again.

        Args:
            iteration: Iterations before the checkpoint. None for the last one.
            overrides: Dotted path -> value, such as `rollout.num_groups` or `environment.max_solution`.

        Returns:
            Dataset `turns`, without the columns that name the run.

        Raises:
            ConfigError: If there is no such checkpoint, or a setting is invalid.
        """
        from starpo.flows.api.checkpoint_export import find_checkpoint
        from starpo.tasks.rollout import rollout

        config = apply_overrides(self.settings, overrides, f"run {self.name}")
        number, checkpoint = find_checkpoint(self.store, self.name, iteration)
        keys = rollout(number, config.at(number), checkpoint).carry_out(self.store)
        return self.store.read_table("turns", keys["turns"])

    def fork(
        self,
        iteration: int,
        overrides: Mapping[str, Any],
        *,
        run: str | None = None,
        server: bool = False,
        quiet: bool = False,
    ) -> "Run":
        """Continue training from a checkpoint with other settings of rollout, reward, filter or update.

        Args:
            iteration: Iterations before the checkpoint.
            overrides: Dotted path -> value.
            run: Name of the fork. None for run, checkpoint, and digits of settings and code.
            server: As for `starpo.train`.
            quiet: As for `starpo.train`.

        Raises:
            ConfigError: If the run cannot be forked there, or a setting cannot change.
        """
        from starpo.flows.console.start import train_fork
        from starpo.flows.console.terminal import Console
        from starpo.tasks.loop.fork import plan_fork

        fork = plan_fork(self.store, self.name, iteration, overrides)
        address, console = self.store.address, Console(quiet=quiet)
        return Run(*train_fork(fork, console, store=address, run=run, is_local=not server))

    def report(self, output: str | PathLike[str] | None = None) -> Path:
        """Write its report, one self-contained HTML page, and return its path. None: to the folder of reports."""
        from starpo.flows.console.pages import check_output, write_report

        path = None if output is None else Path(output)
        check_output(path, ".html")
        return write_report(self.store, self.name, path)
