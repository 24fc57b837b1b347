"""The true credit of a run's turns, measured by continuations that are played; and the measurement verified.

run, iteration, choice, budget -> stage `credit`, first round and refinement -> MeasuredCredit
"""

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from starpo.ragen.config.load import recorded_config
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.learning.true_credit.summary import Summary, summarise
from starpo.ragen.runs.creditable import check_creditable, sampled_by
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Work
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import played_data, read_attempts, recorded_data
from starpo.ragen.store.keeping.recipe import find_recipe
from starpo.ragen.store.records.runs import StageKeys
from starpo.tasks.credit import NUM_FIRST, Choice, OnProgress, chosen_turns, credit, states_of

if TYPE_CHECKING:
    from starpo.tasks.loop.verify import Verification

DEFAULT_CONTINUATIONS = 32
ALL = "all"
"""In place of groups: all of them, kept by the filter or not."""


@dataclass(frozen=True)
class Budget:
    """How much is played; at most one of the three is set.

    Attributes:
        continuations: Mean number of continuations of a state. None with another budget; without any, 32.
        tokens: Tokens sampled in all.
        minutes: Of playing, as the first round's speed predicts.
    """

    continuations: int | None = None
    tokens: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ConfigError: If more than one is set, or one is too small for a standard error.
        """
        given = {name: value for name, value in vars(self).items() if value is not None}
        if len(given) > 1:
            raise ConfigError(f"one budget is enough, found {' and '.join(given)}: leave all but one out")
        if self.continuations is not None and self.continuations < 2:
            raise ConfigError(
                f"continuations = {self.continuations}: a single return has no standard error; ask for at least 2, "
                f"better {DEFAULT_CONTINUATIONS}"
            )
        if (self.tokens or 1) <= 0 or (self.minutes or 1.0) <= 0:
            raise ConfigError("a budget of tokens or minutes must be above 0")

    @property
    def first(self) -> int:
        """Continuations of every state in the first round."""
        return min(NUM_FIRST, self.continuations or DEFAULT_CONTINUATIONS)


@dataclass(frozen=True)
class MeasuredCredit:
    """The credit of turns of one iteration.

    Attributes:
        run: The run's name.
        iteration: The iteration.
        key: Key of the artifact `credits`.
        credits: Dataset `credits`.
        turns: Dataset `turns` of the credited trajectories.
        summary: What they say together.
        seconds: Seconds of playing, in all rounds.
        note: What was not done, and why; "" if all was.
    """

    run: str
    iteration: int
    key: str
    credits: pa.Table
    turns: pa.Table
    summary: Summary
    seconds: float
    note: str = ""


@dataclass(frozen=True)
class _Plan:
    """What is credited: settings, inputs and choice, checked."""

    run: str
    iteration: int
    config: StarPOConfig
    checkpoint: str
    data: dict[str, str]
    choice: Choice
    budget: Budget

    def first_round(self, on_progress: OnProgress | None) -> Work:
        return credit(
            self.config, self.checkpoint, self.data, self.choice, first=self.budget.first, on_progress=on_progress
        )

    def refinement(self, store: Store, first: Work, on_progress: OnProgress | None) -> Work | None:
        """Return the rounds that follow the first one; None if that has used up the budget."""
        manifest, budget = store.manifest("credits", first.key), self.budget
        num_states, num_tokens = (int(manifest.headline[name]) for name in ("num_states", "num_tokens"))
        if budget.tokens is None and budget.minutes is None:
            left = num_states * ((budget.continuations or DEFAULT_CONTINUATIONS) - budget.first)
            unit = "continuations"
        else:
            speed = num_tokens / max(manifest.provenance["playing_seconds"], 1e-3)
            tokens = budget.tokens if budget.minutes is None else int(speed * budget.minutes * 60)
            left, unit = (tokens or 0) - num_tokens, "tokens"
        if left <= 0:
            return None
        return credit(
            self.config, self.checkpoint, self.data, self.choice, earlier=first.key, budget=left, unit=unit,
            on_progress=on_progress,
        )  # fmt: skip


def measure_credit(
    store: Store,
    run: str,
    iteration: int | None = None,
    choice: Choice | None = None,
    budget: Budget | None = None,
    on_progress: OnProgress | None = None,
    placement: ModelPlacement | None = None,
) -> MeasuredCredit:
    """Measure the true credit of turns: the values before and after each, by continuations of the policy that played.

    The run itself does not change; what is stored is not played again.

    Args:
        store: Where the run is stored; results are stored there too.
        run: The run's name.
        iteration: The iteration whose rollout is credited. None for the last one with rewards.
        choice: Which turns. None for all of the groups that the filter kept.
        budget: How much is played. None for 32 continuations of a state on average.
        on_progress: Called with the number of shards of a round that have ended, and of those that it has.
        placement: Where to play; it keeps a checkpoint that was derived. None: one of this measurement alone.

    Returns:
        The credits.

    Raises:
        StoreError: If there is no such run, or a checkpoint cannot be derived.
        ConfigError: If its turns cannot be credited, or the budget is too small.
        EnvironmentFault: If its episodes cannot be played again.
    """
    plan = _plan(store, run, iteration, choice or Choice(), budget or Budget())
    first = plan.first_round(on_progress)
    if not first.is_stored(store):
        _check_budget(store, plan)
    with nullcontext(placement) if placement else ModelPlacement() as opened:
        first.carry_out(store, opened)
        refinement = plan.refinement(store, first, on_progress)
        if refinement is not None:
            refinement.carry_out(store, opened)
    key = (refinement or first).key
    turns, chosen = chosen_turns(store, plan.data, plan.choice, plan.config.seed)
    credits = store.read_table("credits", key)
    works = [first, refinement] if refinement else [first]
    seconds = sum(float(store.manifest("credits", work.key).provenance["playing_seconds"]) for work in works)
    is_spent = refinement is None and (plan.budget.minutes or plan.budget.tokens) is not None
    note = "the first round took the whole budget: a larger one narrows the intervals" if is_spent else ""
    return MeasuredCredit(run, plan.iteration, key, credits, turns, summarise(credits, turns, chosen), seconds, note)


def verify_credit(
    store: Store,
    run: str,
    iteration: int | None = None,
    choice: Choice | None = None,
    budget: Budget | None = None,
) -> "Verification":
    """Play the continuations of a stored measurement again, its first round included, and compare.

    The arguments are those of `measure_credit`, with which it was made. The store is only read.

    Raises:
        ConfigError: If there is no such measurement.
    """
    from starpo.ragen.agents.policy.save import without_progress_bars
    from starpo.ragen.runs.verify.chosen import Visit
    from starpo.ragen.runs.verify.scratch import Scratch
    from starpo.ragen.runs.verify.verifier import Verifier
    from starpo.tasks.loop.verify import Verification

    started = time.perf_counter()
    plan = _plan(store, run, iteration, choice or Choice(), budget or Budget())
    first = plan.first_round(None)
    works = [first] if first.is_stored(store) else []
    if works and (refinement := plan.refinement(store, first, None)) is not None:
        works.append(refinement)
    if not works or not works[-1].is_stored(store):
        raise ConfigError(
            f"this credit of iteration {plan.iteration} of run '{run}' is not stored, so there is nothing to verify: "
            "measure it first, with the same options"
        )
    visits = [Visit(plan.iteration, work.name, work.stage.name, work.keys, work) for work in works]
    with without_progress_bars(), Scratch(store) as scratch, ModelPlacement(is_here=True) as placement:
        verifier = Verifier(store, scratch, plan.config, placement)
        findings = [result for visit in visits for result in verifier.verify(visit)]
    return Verification(run, findings, [plan.iteration], time.perf_counter() - started)


def _plan(store: Store, run: str, iteration: int | None, choice: Choice, budget: Budget) -> _Plan:
    """Check that turns can be credited before anything is played, and say how.

    Raises:
        StoreError, ConfigError, EnvironmentFault: As for `measure_credit`.
    """
    record = store.runs.get(run)
    recorded = store.runs.iterations(record.name)
    config = recorded_config(run, record.config, "Credit it with the release that made it")
    iteration = _iteration(run, recorded, iteration)
    data = played_data(recorded_data(recorded[iteration]))
    played, checkpoint = sampled_by(store, config, data["turns"])
    config = played.model_copy(update={"reward": config.at(iteration).reward})
    check_creditable(config)
    if not store.has("checkpoint", checkpoint):
        find_recipe(store, checkpoint)
    choice = _checked_choice(store, run, iteration, data, choice)
    return _Plan(run, iteration, config, checkpoint, data, choice, budget)


def _iteration(run: str, recorded: dict[int, StageKeys], wanted: int | None) -> int:
    measured = [n for n, stages in recorded.items() if {"rollout", "reward", "variance_filter"} <= stages.keys()]
    if not measured:
        raise ConfigError(f"run '{run}' has no rollout with rewards, so there are no turns to credit")
    if wanted is not None and wanted not in measured:
        raise ConfigError(
            f"run '{run}' has no rollout with rewards at iteration {wanted}; it has {len(measured)}, from "
            f"{measured[0]} to {measured[-1]}"
        )
    return measured[-1] if wanted is None else wanted


def _checked_choice(store: Store, run: str, iteration: int, data: dict[str, str], choice: Choice) -> Choice:
    """Check the groups, and return the choice with the names of 'all'."""
    names = read_attempts(store, "selection", data, ["group_id", "kept"]).to_pylist()
    ids = [row["group_id"] for row in names]
    if choice.groups == (ALL,):
        choice = Choice(tuple(ids), choice.sample)
    unknown = sorted({*(choice.groups or ())} - {*ids})
    if unknown:
        raise ConfigError(
            f"run '{run}' has no group {', '.join(unknown)} in iteration {iteration}; its {len(ids)} groups are "
            f"{ids[0]} to {ids[-1]}"
        )
    if choice.groups is None and not any(row["kept"] for row in names):
        raise ConfigError(
            f"the filter kept no group of iteration {iteration} of run '{run}': name some with --groups, or '{ALL}'"
        )
    if choice.sample is not None and choice.sample < 1:
        raise ConfigError(f"a sample of {choice.sample} trajectories: expected at least 1")
    return choice


def _check_budget(store: Store, plan: _Plan) -> None:
    """Check that a budget of tokens suffices for the first round, by what the stored trajectories took from each state.

    Raises:
        ConfigError: If it does not, or there is nothing to credit.
    """
    turns, chosen = chosen_turns(store, plan.data, plan.choice, plan.config.seed)
    if not chosen.trajectories:
        raise ConfigError(
            f"there is no trajectory to credit: of {chosen.num_all}, {chosen.num_errors} ended in an error and "
            f"{chosen.num_greedy} were greedy"
        )
    if plan.budget.tokens is None:
        return
    states = states_of(turns, plan.config)
    left: dict[tuple[str, int], int] = {}
    total, before = 0, ""
    for row in reversed(turns.select(["trajectory_id", "turn", "response_ids"]).to_pylist()):
        total = (total if row["trajectory_id"] == before else 0) + len(row["response_ids"])
        before = row["trajectory_id"]
        left[row["trajectory_id"], row["turn"]] = total
    needed = plan.budget.first * sum(left[place] for place in states.places)
    if plan.budget.tokens < needed:
        raise ConfigError(
            f"{plan.budget.tokens:,} tokens are too few to tell anything: {plan.budget.first} continuations of each of "
            f"{len(states.places):,} states take about {math.ceil(needed / 1000) * 1000:,}; allow as many, or credit "
            "fewer trajectories (--sample, --groups)"
        )
