"""The result of a sweep: scores of checkpoints over seeds, and their ranks.

(cells, their keys, outcomes, errors) --summarise--> SweepResult --> record, tables, heat maps
"""

import math
from collections.abc import Mapping, Sequence

from pydantic import Field

from starpo.ragen.agents.evaluation.comparison import Prompt, paired_comparison
from starpo.ragen.agents.evaluation.intervals import mean_interval
from starpo.ragen.studies.checkpoints import SweepCell
from starpo.ragen.studies.outcomes import CellOutcome
from starpo.ragen.studies.result import Difference, ResultPart, StudyResult
from starpo.ragen.studies.scores import Comparison, Measured, Score, compare_all, measure, score
from starpo.ragen.studies.sweep import Sweep


class Standing(ResultPart):
    """A checkpoint at a temperature: a row of the leaderboard."""

    rank: int | None
    """From 1; ties share a rank. None if not all of its cells were evaluated."""
    run: str
    """Run that the checkpoint belongs to."""
    iteration: int
    """Number of iterations before it."""
    temperature: float
    """Sampling temperature."""
    success: float | None
    """Mean over the environments; None as for `rank`."""
    low: float | None
    """Lower end of its 95% interval; see `ragen.agents.evaluation.intervals.mean_interval`."""
    high: float | None
    """Upper end."""
    difference: Comparison | None
    """Success minus that of the first, state by state; None if this is the first, if it has no rank, or if there is a
    panel on which they have no prompt in common."""
    scores: dict[str, Score]
    """Panel -> score; panels without any evaluated seed are absent."""


class SweepResult(StudyResult):
    """Result of a sweep. A function of stored cells alone: the same cells give the same bytes."""

    sweep: Sweep
    """The specification."""
    runs: dict[str, str]
    """Run whose checkpoints were evaluated -> name of the environment that it trains on."""
    environments: list[str]
    """Panels, in the order of the columns."""
    cells: dict[str, str]
    """Label of a cell -> key of its `episodes` and `metrics`."""
    errors: dict[str, str] = Field(default_factory=dict)
    """Label of a cell -> why it could not be evaluated."""
    waiting: dict[str, str] = Field(default_factory=dict)
    """Run -> requested checkpoints that did not exist yet."""
    leaderboard: list[Standing]
    """Best first; those without a rank last."""
    num_errors: int = 0
    """Number of episodes that ended in an environment error or at a deadline."""
    unknown_origins: dict[str, int] = Field(default_factory=dict)
    """Run -> stages of its training that are not in the store, if there are any."""

    def label(self, standing: Standing) -> str:
        """Name a row: `RUN@40`, or the subject that is no run."""
        is_run = standing.run not in self.sweep.subjects
        return f"{standing.run}@{standing.iteration}" if is_run else standing.run

    @property
    def failures(self) -> dict[str, str]:
        """Label of a cell -> why it failed."""
        return self.errors

    @property
    def is_measured(self) -> bool:
        """Whether there is a score."""
        return any(standing.scores for standing in self.leaderboard)

    @property
    def warnings(self) -> list[str]:
        """Caveats for reading the numbers."""
        caveats = []
        if sum(standing.rank is not None for standing in self.leaderboard) > 1:
            caveats.append(
                "the best of many is also the luckiest of them: its success is biased upwards, and the more so the "
                "more checkpoints are compared; evaluate it again with other seeds before quoting it"
            )
        caveats += [text for name in self.environments if (text := self._seen_warning(name))]
        caveats += [
            f"run {run}: {number} stages of its training are not in this store, so prompts that it started from "
            "may be counted"
            for run, number in self.unknown_origins.items()
        ]
        if self.num_errors:
            caveats.append(
                f"{self.num_errors} episodes ended in an environment error or at a deadline and are not counted"
            )
        caveats += [f"run {run} does not have {what} yet" for run, what in self.waiting.items()]
        return caveats

    def _seen_warning(self, panel: str) -> str:
        """Format how many prompts of a panel are excluded, and the success on them; empty if there are none."""
        scores = [standing.scores[panel] for standing in self.leaderboard if panel in standing.scores]
        number = max((score.num_seen_prompts for score in scores), default=0)
        if not number:
            return ""
        total = number + max(score.num_prompts for score in scores)
        text = (
            f"{panel}: {number} of {total} prompts are states from which training of a compared checkpoint started; "
            "no score counts them"
        )
        pairs = [(score.seen_success, score.success) for score in scores if score.seen_success is not None]
        if not pairs:
            return text
        seen_success, unseen_success = (math.fsum(part) / len(pairs) for part in zip(*pairs, strict=True))
        return (
            f"{text} (success where a checkpoint's own training started {seen_success:.3f}, on the prompts that count "
            f"{unseen_success:.3f})"
        )


_Policy = tuple[str, int, float]
"""Run, iteration, temperature."""


def summarise(
    sweep: Sweep,
    cells: Sequence[SweepCell],
    keys: Sequence[str],
    outcomes: Mapping[str, CellOutcome],
    errors: Mapping[str, str],
    waiting: Mapping[str, str],
) -> SweepResult:
    """Summarise the measurements of the cells.

    Args:
        sweep: The specification.
        cells: The cells that it expanded to.
        keys: Keys of their artifacts, aligned with `cells`.
        outcomes: Label of a cell -> its outcome.
        errors: Label of a cell -> why it failed.
        waiting: Run -> requested checkpoints that do not exist yet.
    """
    headlines = {cell.run: outcomes[cell.label].headline for cell in cells if cell.label in outcomes}
    return SweepResult(
        name=sweep.name,
        sweep=sweep,
        runs={cell.run: cell.trained_on for cell in cells},
        environments=list(dict.fromkeys(cell.environment for cell in cells)),
        cells={cell.label: key for cell, key in zip(cells, keys, strict=True)},
        errors={cell.label: errors[cell.label] for cell in cells if cell.label in errors},
        waiting=dict(waiting),
        leaderboard=_leaderboard(_by_policy(cells, outcomes), sweep.is_matrix),
        num_errors=int(sum(outcome.headline.get("num_errors", 0.0) for outcome in outcomes.values())),
        unknown_origins={
            run: int(of["num_unknown_origins"]) for run, of in headlines.items() if "num_unknown_origins" in of
        },
    )


def _by_policy(cells: Sequence[SweepCell], outcomes: Mapping[str, CellOutcome]) -> dict[_Policy, dict[str, Measured]]:
    """Return the measurements by checkpoint and temperature, and by panel.

    A prompt from which training of any compared checkpoint started is excluded for all, so that all are compared on the
    same prompts.
    """
    seen_prompts: dict[str, set[Prompt]] = {}
    places: dict[_Policy, dict[str, list[SweepCell]]] = {}
    for cell in cells:
        policy = cell.run, cell.iteration, cell.evaluation.temperature
        places.setdefault(policy, {}).setdefault(cell.environment, []).append(cell)
        of_panel = seen_prompts.setdefault(cell.environment, set())
        if cell.label in outcomes:
            of_panel.update(outcomes[cell.label].seen_counts)
    return {
        policy: {panel: measure(of_panel, outcomes, seen_prompts[panel]) for panel, of_panel in panels.items()}
        for policy, panels in places.items()
    }


def _leaderboard(policies: Mapping[_Policy, Mapping[str, Measured]], is_matrix: bool) -> list[Standing]:
    ranked = [policy for policy, panels in policies.items() if all(of.is_whole for of in panels.values())]
    means = {
        policy: math.fsum(_success(of) for of in policies[policy].values()) / len(policies[policy]) for policy in ranked
    }
    order = sorted(means, key=lambda policy: -means[policy])  # stable: ties stay in the requested order
    first, behind = (policies[order[0]] if order else {}), order[1:]
    overall = compare_all(
        {policy: [(of.counts, first[panel].counts) for panel, of in policies[policy].items()] for policy in behind},
        len(order),
    )
    scores: dict[_Policy, dict[str, Score]] = {policy: {} for policy in policies}
    for panel in dict.fromkeys(panel for panels in policies.values() for panel in panels):
        here = {policy: panels[panel] for policy, panels in policies.items() if panel in panels}
        successes = compare_all({policy: [(here[policy].counts, first[panel].counts)] for policy in behind}, len(order))
        returns = compare_all(
            {policy: [(here[policy].returns, first[panel].returns)] for policy in behind}, len(order), reach=None
        )
        for policy, measured in here.items():
            if measured.counts:
                gain = _gain(policies, policy, panel) if is_matrix else None
                scores[policy][panel] = score(measured, successes.get(policy), returns.get(policy), gain)
    standings = []
    for policy in [*order, *(policy for policy in policies if policy not in means)]:
        run, iteration, temperature = policy
        is_ranked, of_panels = policy in means, scores[policy].values()
        low, high = (
            mean_interval([of.success for of in of_panels], [(of.low, of.high) for of in of_panels])
            if is_ranked
            else (None, None)
        )
        standings.append(
            Standing(
                rank=1 + sum(mean > means[policy] for mean in means.values()) if is_ranked else None,
                run=run,
                iteration=iteration,
                temperature=temperature,
                success=means.get(policy),
                low=low,
                high=high,
                difference=overall.get(policy),
                scores=scores[policy],
            )
        )
    return standings


def _success(measured: Measured) -> float:
    successes, trials = map(sum, zip(*measured.counts.values(), strict=True))
    return successes / trials


def _gain(policies: Mapping[_Policy, Mapping[str, Measured]], policy: _Policy, panel: str) -> Difference | None:
    """Compare a run's last checkpoint with its first, on one panel; None for its other checkpoints."""
    run, iteration, temperature = policy
    iterations = [at for of_run, at, of_temperature in policies if (of_run, of_temperature) == (run, temperature)]
    first = policies[run, min(iterations), temperature]
    if iteration != max(iterations) or iteration == min(iterations):
        return None
    gain = paired_comparison([(policies[policy][panel].counts, first[panel].counts)])
    return Difference(mean=gain.mean, low=gain.low, high=gain.high) if gain else None
