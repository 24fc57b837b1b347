"""Actions on a collapse, with scripted metrics: when the loop ends, what it records, and how a run continues."""

from collections.abc import Mapping
from typing import Any

import pytest

from starpo.flows.ablation_plan import is_finished
from starpo.flows.presets import preset
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import CollapsedError, ConfigError, NothingKeptError
from starpo.ragen.learning.control.collapse import FORMAT, SUCCESS
from starpo.ragen.runs.work import Keys, Work
from starpo.ragen.store import Store
from starpo.tasks.loop.plan import plan_run
from starpo.tasks.loop.rollback import describe_outcome, final_run, is_rollback, rolled_back
from starpo.tasks.loop.runner import Runner
from starpo.tasks.loop.training import train

REMEDIES = [{"update.kl_coefficient": 0.5}, {"filter.keep": 0.25}]
ROLL_BACK = {"diagnostics.on_collapse": "roll_back", "diagnostics.remedies": REMEDIES, "iterations": 40}


class Scripted(Runner):
    """Runner that does no work; the script gives the metrics of each iteration."""

    name, store_url = "mine", "memory://"

    def __init__(self, script: Mapping[str, list[float]]) -> None:
        self.script = script
        self.metrics = {"filter/num_kept": 1.0}
        self.done: list[tuple[int, Work]] = []

    def metric(self, iteration: int, name: str) -> float | None:
        return self.metrics.get(name)

    def stage(self, iteration: int, work: Work) -> Keys:
        self.done.append((iteration, work))
        if work.stage.name == "diagnose":
            self.metrics |= {name: values[min(iteration, len(values) - 1)] for name, values in self.script.items()}
        return work.keys


FALLING = {SUCCESS: [0.3, 0.4, 0.5, 0.5, 0.6, 0.6, 0.7, 0.8, 0.1], FORMAT: [1.0]}


def run(script: Mapping[str, list[float]], overrides: dict[str, Any]) -> tuple[Scripted, CollapsedError | None]:
    return trained(script, preset("smoke", {"iterations": 40, **overrides}))


def trained(
    script: Mapping[str, list[float]], config: StarPOConfig, name: str = "mine"
) -> tuple[Scripted, CollapsedError | None]:
    runner = Scripted(script)
    runner.name = name
    try:
        train(runner, config)
    except CollapsedError as error:
        return runner, error
    return runner, None


def test_declining_run_returns_to_first_update() -> None:
    declining = {SUCCESS: [max(0.02, 0.6 - 0.02 * iteration) for iteration in range(40)]}
    _, error = run(declining, ROLL_BACK)
    assert error is not None
    assert error.healthy == 1
    assert "It goes on from checkpoint 1" in str(error)


def test_online_k_returns_to_measured_policy() -> None:
    rises = {SUCCESS: [0.2] * 4 + [0.8] * 4 + [0.05] * 32}  # measured on rollouts of iterations 0, 4, 8, ...
    _, error = run(rises, {**ROLL_BACK, "online_k": 4})
    assert error is not None
    assert error.healthy == 4


def test_default_settings_only_report_collapse() -> None:
    runner, error = run(FALLING, {})
    assert error is None
    assert "incident" not in {work.stage.name for _, work in runner.done}


def test_collapse_stops_run_with_incident() -> None:
    runner, error = run(FALLING, {"diagnostics.on_collapse": "stop"})
    assert error is not None
    iteration, incident = runner.done[-1]
    assert iteration == 13  # smoothed success is below half of its best at 11, 12 and 13
    assert incident.stage.name == "incident"
    assert (incident.settings["healthy"], incident.settings["status"]) == (7, "collapsed")
    rollouts = {n: work.key for n, work in runner.done if work.stage.name == "rollout"}
    assert incident.inputs == {"turns": rollouts[13], "before_turns": rollouts[7]}
    assert str(error).startswith("iteration 13: collapsed: since iteration")
    assert str(error).endswith("It ends here, as diagnostics.on_collapse = 'stop' says")


def test_an_earlier_alarm_stops_earlier() -> None:
    script = {**FALLING, FORMAT: [1.0] * 8 + [0.6]}
    runner, error = run(script, {"diagnostics.on_collapse": "stop", "diagnostics.alarm": "collapsing"})
    assert error is not None
    assert runner.done[-1][0] < 13
    assert runner.done[-1][1].settings["status"] == "collapsing"


def test_lowered_limit_ends_the_run() -> None:
    lowered = [{"iteration": 3, "set": {"filter.max_empty_iterations": 2}}]
    runner = Scripted({"filter/num_kept": [0.0]})
    with pytest.raises(NothingKeptError, match="no group in 4 iterations in a row"):
        train(runner, preset("smoke", {"iterations": 40, "filter.max_empty_iterations": 10, "schedule": lowered}))


def test_healthy_run_completes() -> None:
    runner, error = run({SUCCESS: [0.3, 0.4, 0.5], FORMAT: [1.0]}, {"diagnostics.on_collapse": "stop"})
    assert error is None
    assert sum(work.stage.name == "update" for _, work in runner.done) == 40


def test_forks_try_remedies_in_order() -> None:
    config = preset("smoke", ROLL_BACK)
    name, first = rolled_back("mine", config, 7) or pytest.fail("no fork")
    assert name == "mine-rollback-7"
    assert first.at(6).update.kl_coefficient == config.update.kl_coefficient
    assert first.at(7).update.kl_coefficient == 0.5
    assert first.diagnostics.remedies == [{"filter.keep": 0.25}]
    name, second = rolled_back(name, first, 9) or pytest.fail("no fork")
    assert name == "mine-rollback-7-rollback-9"
    assert (second.at(9).update.kl_coefficient, second.at(9).filter.keep, second.at(8).filter.keep) == (0.5, 0.25, 0.5)
    assert rolled_back(name, second, 12) is None
    assert "no remedy is left" in describe_outcome(name, second, 12)
    assert rolled_back("mine", config, 0) is None
    assert "no iteration after the first was healthy" in describe_outcome("mine", config, 0)


@pytest.mark.parametrize(("end", "ends_as"), [(0.8, "mine-rollback-7"), (0.1, "mine-rollback-7-rollback-7")])
def test_plan_continues_with_the_forks(end: float, ends_as: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an ablation would never finish it, as its own state stays 'failed'."""
    config = preset("smoke", ROLL_BACK)
    fork, of_fork = rolled_back("mine", config, 7) or pytest.fail("no fork")
    last, of_last = rolled_back(fork, of_fork, 7) or pytest.fail("no fork")
    runs = [("mine", config, 0.1), (fork, of_fork, end), (last, of_last, 0.1)]
    runs = runs[: 1 + [name for name, *_ in runs].index(ends_as)]
    expected, measured = set(), {}
    for name, made, value in runs:
        success = [*FALLING[SUCCESS][:8], *[value] * 40]
        for iteration, work in trained({**FALLING, SUCCESS: success}, made, name)[0].done:
            expected.add(work)
            measured[work.key] = {SUCCESS: success[iteration], FORMAT: 1.0, "filter/num_kept": 1.0}
    monkeypatch.setattr(Work, "is_stored", lambda *_: True)
    monkeypatch.setattr("starpo.tasks.loop.plan.stored_metrics", lambda _, key: measured[key])
    plan = plan_run(store, "mine", config)
    assert plan.ends_as == ends_as
    assert (plan.stops is None) is (ends_as == fork)
    assert set(plan.stages) == expected
    assert len(plan.stages) == len(expected)
    for run in ("mine", ends_as):
        store.runs.create(run, flow="starpo", preset="smoke", config={})
    store.runs.set_state("mine", "failed")
    store.runs.set_state(ends_as, "failed" if plan.stops else "completed")
    assert is_finished(store, plan) is (ends_as == fork)


def test_fork_names_stay_distinct_when_long() -> None:
    config = preset("smoke", {**ROLL_BACK, "diagnostics.remedies": REMEDIES * 2})
    runs = [f"{'a-study.' * 11}cell-s{seed}-0a1b2c3d" for seed in (0, 1)]
    assert all(len(run) > 80 for run in runs)
    first, other = ((rolled_back(run, config, 7) or pytest.fail("no fork"))[0] for run in runs)
    assert first != other
    assert (is_rollback(first, runs[0]), is_rollback(other, runs[0])) == (True, False)
    again, _ = rolled_back(first, config, 7) or pytest.fail("no fork")
    assert again not in runs
    assert again != first
    assert final_run(runs[0], [*runs, first, other, again]) == again
    assert final_run("mine", [*runs, first]) == "mine"


def test_fork_keeps_only_earlier_changes() -> None:
    schedule = [{"iteration": n, "set": {"filter.keep": 1.0 / n}} for n in (2, 5)]
    _, fork = rolled_back("mine", preset("smoke", {**ROLL_BACK, "schedule": schedule}), 3) or pytest.fail("no fork")
    assert [(change.iteration, change.set) for change in fork.schedule] == [(2, {"filter.keep": 0.5}), (3, REMEDIES[0])]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"diagnostics.remedies": REMEDIES}, "have no effect unless diagnostics.on_collapse = 'roll_back'"),
        ({**ROLL_BACK, "diagnostics.remedies": [{"seed": 1}]}, "seed cannot change during training"),
        ({**ROLL_BACK, "diagnostics.remedies": [{"filter.kep": 1}]}, "diagnostics.remedies.0: filter.kep = 1: no such"),
        ({**ROLL_BACK, "diagnostics.remedies": [{}]}, "at least 1 item"),
        (
            {**ROLL_BACK, "diagnostics.remedies": [{"update.ratio_to": "behaviour"}, {"update.importance_cap": 2.0}]},
            r"diagnostics.remedies.1 \(after those before it\): .*importance_cap",
        ),
        (
            {
                **ROLL_BACK,
                "diagnostics.remedies": [{"update.ratio_to": "behaviour"}],
                "schedule": [{"iteration": 5, "set": {"update.importance_cap": 2.0}}],
            },
            r"diagnostics.remedies.0 \(after the change at iteration 5\): .*importance_cap",
        ),
    ],
)
def test_inapplicable_remedies_are_rejected_early(overrides: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        preset("smoke", overrides)
