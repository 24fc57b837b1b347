"""The result of a sweep: scores of checkpoints over seeds, and their ranks.

(cells, their keys, outcomes, errors) --summarise--> SweepResult --> record, tables, heat maps
"""

import math
from collections.abc import Mapping, Sequence

from pydantic import Field

from starpo.ragen.agents.evaluation.comparison import Prompt, paired_comparison
from starpo.ragen.agents.evaluation.intervals import mean_interval
from starpo.ragen.core.counts import counted
from starpo.ragen.studies.checkpoints import SweepCell
from starpo.ragen.studies.outcomes import CellOutcome
from starpo.ragen.studies.pairs import Pair, Policy, compare_pairs
from starpo.ragen.studies.result import Difference, ResultPart, StudyResult
from starpo.ragen.studies.scores import Comparison, Measured, Score, measure, score
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

    @property
    def line(self) -> Policy:
        """Run, iteration and temperature."""
        return self.run, self.iteration, self.temperature


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
    pairs: list[Pair] = Field(default_factory=list)
    """Every ranked line against every one above it; absent in results of earlier releases."""
    num_errors: int = 0
    """Number of episodes that ended in an environment error or at a deadline."""
    num_requests: dict[str, int] = Field(default_factory=dict)
    """Run or subject -> requests that its server answered, of all panels and seeds; of servers alone."""
    num_repeated: dict[str, int] = Field(default_factory=dict)
    """Run or subject -> how often one of them was sent again, since the server limits rates, failed or was away."""
    unknown_origins: dict[str, int] = Field(default_factory=dict)
    """Run -> stages of its training that are not in the store, if there are any."""

    def label(self, line: Policy) -> str:
        """Name a line: `RUN@40`, or the subject that is no run; with its temperature if there are several."""
        run, iteration, temperature = line
        has_several = len({of.temperature for of in self.leaderboard}) > 1
        name = run if run in self.sweep.subjects else f"{run}@{iteration}"
        return f"{name} T={temperature:g}" if has_several else name

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
        caveats += [
            f"{name}: {counted(number, 'request')} had to be sent again until all {self.num_requests[name]:,} were "
            "answered (a limit of rates, an error of the server, a lost connection)"
            for name, number in self.num_repeated.items()
        ]
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
    policies = _by_policy(cells, outcomes)
    means = _means(policies)
    pairs = compare_pairs(policies, list(means))
    requests, repeated = (_summed(cells, outcomes, name) for name in ("engine_requests", "engine_retries"))
    headlines = {cell.run: outcomes[cell.label].headline for cell in cells if cell.label in outcomes}
    return SweepResult(
        name=sweep.name,
        sweep=sweep,
        runs={cell.run: cell.trained_on for cell in cells},
        environments=list(dict.fromkeys(cell.environment for cell in cells)),
        cells={cell.label: key for cell, key in zip(cells, keys, strict=True)},
        errors={cell.label: errors[cell.label] for cell in cells if cell.label in errors},
        waiting=dict(waiting),
        leaderboard=_leaderboard(policies, means, pairs, sweep.is_matrix),
        pairs=pairs,
        num_errors=int(sum(outcome.headline.get("num_errors", 0.0) for outcome in outcomes.values())),
        num_requests=requests,
        num_repeated={name: number for name, number in repeated.items() if number},
        unknown_origins={
            run: int(of["num_unknown_origins"]) for run, of in headlines.items() if "num_unknown_origins" in of
        },
    )


def _summed(cells: Sequence[SweepCell], outcomes: Mapping[str, CellOutcome], metric: str) -> dict[str, int]:
    """Return run or subject -> the sum of a metric over its cells; without those that have it nowhere."""
    summed: dict[str, int] = {}
    for cell in cells:
        headline = outcomes[cell.label].headline if cell.label in outcomes else {}
        if metric in headline:
            summed[cell.run] = summed.get(cell.run, 0) + int(headline[metric])
    return summed


def _by_policy(cells: Sequence[SweepCell], outcomes: Mapping[str, CellOutcome]) -> dict[Policy, dict[str, Measured]]:
    """Return the measurements by checkpoint and temperature, and by panel.

    A prompt from which training of any compared checkpoint started is excluded for all, so that all are compared on the
    same prompts.
    """
    seen_prompts: dict[str, set[Prompt]] = {}
    places: dict[Policy, dict[str, list[SweepCell]]] = {}
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


def _means(policies: Mapping[Policy, Mapping[str, Measured]]) -> dict[Policy, float]:
    """Return mean success over the panels of the policies of which all cells were evaluated, best first."""
    means = {
        policy: math.fsum(map(_success, panels.values())) / len(panels)
        for policy, panels in policies.items()
        if all(of.is_whole for of in panels.values())
    }
    return dict(sorted(means.items(), key=lambda item: -item[1]))  # stable: ties stay in the requested order


def _leaderboard(
    policies: Mapping[Policy, Mapping[str, Measured]],
    means: Mapping[Policy, float],
    pairs: Sequence[Pair],
    is_matrix: bool,
) -> list[Standing]:
    first = next(iter(means), None)
    to_first = {pair.line: pair for pair in pairs if pair.other == first}
    scores: dict[Policy, dict[str, Score]] = {policy: {} for policy in policies}
    for policy, panels in policies.items():
        of_panels = to_first[policy].panels if policy in to_first else {}
        for panel, measured in panels.items():
            if measured.counts:
                gain, pair = _gain(policies, policy, panel) if is_matrix else None, of_panels.get(panel)
                changes = (pair.difference, pair.return_difference) if pair else (None, None)
                scores[policy][panel] = score(measured, *changes, gain)
    standings = []
    for policy in [*means, *(policy for policy in policies if policy not in means)]:
        run, iteration, temperature = policy
        is_ranked, measured_panels = policy in means, scores[policy].values()
        low, high = (
            mean_interval([of.success for of in measured_panels], [(of.low, of.high) for of in measured_panels])
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
                difference=to_first[policy].difference if policy in to_first else None,
                scores=scores[policy],
            )
        )
    return standings


def _success(measured: Measured) -> float:
    successes, trials = map(sum, zip(*measured.counts.values(), strict=True))
    return successes / trials


def _gain(policies: Mapping[Policy, Mapping[str, Measured]], policy: Policy, panel: str) -> Difference | None:
    """Compare a run's last checkpoint with its first, on one panel; None for its other checkpoints."""
    run, iteration, temperature = policy
    iterations = [at for of_run, at, of_temperature in policies if (of_run, of_temperature) == (run, temperature)]
    first = policies[run, min(iterations), temperature]
    if iteration != max(iterations) or iteration == min(iterations):
        return None
    gain = paired_comparison([(policies[policy][panel].counts, first[panel].counts)])
    return Difference(mean=gain.mean, low=gain.low, high=gain.high) if gain else None
