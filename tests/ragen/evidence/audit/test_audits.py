"""Every audit finds no fault in a sound run, and detects what it is designed to detect."""

from collections.abc import Callable
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.registry import AUDITS
from starpo.ragen.evidence.audit.audits import chosen_audits, run_audits
from starpo.ragen.evidence.audit.finding import Finding
from starpo.ragen.evidence.audit.stored import open_database
from starpo.ragen.learning.filter.select import select_groups
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.store import Store
from tests.examples import example

from .conftest import Ask, played_turns, samples_of


def changed(table: pa.Table, change: Callable[[int, dict[str, Any]], dict[str, Any]]) -> pa.Table:
    """Replace the columns that `change(number, row)` returns in every row of a table."""
    rows = [{**row, **change(number, row)} for number, row in enumerate(table.to_pylist())]
    return pa.Table.from_pylist(rows, schema=table.schema)


def only(number: int, **columns: Any) -> Callable[[int, dict[str, Any]], dict[str, Any]]:
    return lambda row_number, _: columns if row_number == number else {}


def rewarded(turns: pa.Table) -> pa.Table:
    return compute_rewards(turns, RewardConfig())


def audited(name: str, database: Any) -> Finding:
    ((_, finding),) = run_audits(database, [name])
    return finding


@pytest.mark.ci
def test_a_sound_run_has_no_fault(filled: Store) -> None:
    with open_database(filled, ["mine"]) as database:
        findings = dict(run_audits(database))
    assert list(findings) == list(AUDITS)
    for name, finding in findings.items():
        assert finding.severity == "note", (name, finding.summary)
        assert finding.summary
        assert finding.meaning
        assert finding.table.num_rows or name in ("errors", "contamination")


@pytest.mark.ci
@pytest.mark.parametrize("name", list(AUDITS))
def test_run_without_rows_has_no_fault(tables: Ask, name: str) -> None:
    assert audited(name, tables()).severity == "note"


@pytest.mark.ci
@pytest.mark.parametrize("name", [name for name in AUDITS if name not in ("groups", "staleness")])  # those count uses
def test_reused_data_counted_once(tables: Ask, name: str) -> None:
    turns, episodes = changed(played_turns(), only(0, **TestErrors.ERROR)), example("episodes")
    rewards = rewarded(turns)
    once = audited(name, tables(turns=turns, rewards=rewards, episodes=episodes))
    assert once.table.num_rows
    assert audited(name, tables(turns=[turns] * 2, rewards=[rewards] * 2, episodes=[episodes] * 2)) == once


def test_names_are_checked() -> None:
    assert chosen_audits([]) == list(AUDITS)
    assert chosen_audits(["rewards", "errors", "rewards"]) == ["rewards", "errors"]
    with pytest.raises(ConfigError, match="did you mean rewards"):
        chosen_audits(["reward"])
    with pytest.raises(ConfigError, match=f"there are: {', '.join(AUDITS)}"):
        chosen_audits(["xyzzy"])


class TestDuplicates:
    def test_shares_by_hand(self, tables: Ask) -> None:
        turns = played_turns(num_groups=1)
        texts = ["a", "a", "a", "b", "c"]
        turns = changed(turns.slice(0, 5), lambda n, _: {"response": texts[n], "think": texts[n]})
        (row,) = audited("duplicates", tables(turns=turns)).table.to_pylist()
        assert (row["responses"], row["distinct_responses"], row["top_response_share"]) == (5, 0.6, 0.6)
        assert (row["top_response"], row["top_reasoning"], row["distinct_reasoning"]) == ("a", "a", 0.6)

    def test_single_reasoning_for_all_warns(self, tables: Ask) -> None:
        turns = changed(played_turns(num_groups=12), lambda *_: {"think": "I must win"})
        finding = audited("duplicates", tables(turns=turns))
        assert finding.severity == "warning"
        assert "in 1 iteration one reasoning makes up half or more" in finding.summary

    def test_single_reasoning_for_one_board_passes(self, tables: Ask) -> None:
        turns = changed(played_turns(num_groups=12), lambda *_: {"think": "same", "observation": "same"})
        assert audited("duplicates", tables(turns=turns)).severity == "note"


class TestFormats:
    def test_kinds_of_faults_by_hand(self, tables: Ask) -> None:
        bad = {"format_ok": False, "status": "format_error"}
        kinds = [
            {},
            {**bad, "finish_reason": "length", "answer": None},
            {**bad, "answer": None},
            {**bad, "answer": "Jump"},
            {**bad, "finish_reason": "none"},
        ]
        turns = changed(played_turns().slice(0, 5), lambda n, _: kinds[n])
        finding = audited("formats", tables(turns=turns))
        (row,) = finding.table.to_pylist()
        assert (row["responses"], row["invalid"]) == (4, 0.75)
        assert (row["cut_off"], row["bad_tags"], row["bad_actions"]) == (0.25, 0.25, 0.25)
        assert finding.severity == "warning"

    def test_over_time(self, tables: Ask) -> None:
        good, bad = played_turns(), changed(played_turns(), lambda *_: {"format_ok": False})
        finding = audited("formats", tables(turns=[bad, good]))
        assert finding.severity == "note"
        assert "1 -> 0" in finding.summary


class TestActions:
    def test_shares_by_hand(self, tables: Ask) -> None:
        effects = [[True, False], [False], [True]]
        turns = changed(
            played_turns().slice(0, 3),
            lambda n, _: {"action_effective": effects[n], "executed_actions": ["Up"] * len(effects[n]), "turn": 0,
                          "trajectory_id": str(n), "state_digest": f"{n:016x}",
                          "initial_state_digest": f"{n:016x}" if n == 1 else "f" * 16},
        )  # fmt: skip
        finding = audited("actions", tables(turns=turns))
        assert finding.severity == "note"
        (row,) = finding.table.to_pylist()
        assert (row["actions"], row["without_effect"], row["idle_turns"]) == (4, 0.5, pytest.approx(1 / 3, abs=1e-4))

    @pytest.mark.parametrize("turn", [0, 1])
    def test_changed_state_without_effect_is_fault(self, tables: Ask, turn: int) -> None:
        turns = changed(played_turns(), only(turn, action_effective=[False], executed_actions=["Up"]))
        turns = changed(turns, only(turn, state_digest="f" * 16))
        finding = audited("actions", tables(turns=turns))
        assert finding.severity == "fault"
        assert {"trajectory_id": "g0000-0", "turn": turn}.items() <= finding.table.to_pylist()[0].items()

    def test_unchanged_state_after_effect_is_fault(self, tables: Ask) -> None:
        turns = played_turns()
        first = turns.to_pylist()[0]["initial_state_digest"]
        change = only(0, action_effective=[True], executed_actions=["Up"], state_digest=first)
        assert audited("actions", tables(turns=changed(turns, change))).severity == "fault"

    def test_a_failed_environment_is_not_judged(self, tables: Ask) -> None:
        change = only(0, action_effective=[], executed_actions=[], state_digest="f" * 16, status="env_error")
        assert (
            audited("actions", tables(turns=changed(played_turns(num_groups=1).slice(0, 1), change))).severity == "note"
        )


class TestRewards:
    @pytest.mark.parametrize(
        ("change", "fault"),
        [
            ({"total": 100.0}, "total is not the sum of component_values"),
            ({"component_values": [float("nan"), 0.0, 0.0]}, "total is not the sum of component_values"),
            ({"component_values": [float("inf"), 0.0, 0.0]}, "total is not the sum of component_values"),
            ({"trajectory_return": 100.0}, "trajectory_return is not the sum of total"),
            ({"component_values": [50.0, -50.3, 0.0]}, "the component environment is not the sum of action_rewards"),
            ({"is_valid": False}, "is_valid (1 or 0) contradicts the statuses"),
        ],
    )
    def test_each_sum_is_made_again(self, tables: Ask, change: dict[str, Any], fault: str) -> None:
        turns = played_turns()
        finding = audited("rewards", tables(turns=turns, rewards=changed(rewarded(turns), only(0, **change))))
        assert finding.severity == "fault"
        rows = [row for row in finding.table.to_pylist() if row["fault"].startswith(fault)]
        assert rows
        assert (rows[0]["trajectory_id"], rows[0]["turn"]) == ("g0000-0", 0)

    def test_greedy_trajectory_in_statistics_is_fault(self, tables: Ask) -> None:
        turns = played_turns()
        greedy = changed(turns, lambda _, row: {"origin": "greedy"} if row["trajectory_id"] == "g0000-0" else {})
        assert audited("rewards", tables(turns=greedy, rewards=rewarded(greedy))).severity == "note"
        assert audited("rewards", tables(turns=greedy, rewards=rewarded(turns))).severity == "fault"

    def test_rows_without_partners_are_faults(self, tables: Ask) -> None:
        turns = played_turns()
        missing = audited("rewards", tables(turns=turns, rewards=rewarded(turns).slice(1)))
        surplus = audited("rewards", tables(turns=turns.slice(1), rewards=rewarded(turns)))
        assert "the turn has no reward" in missing.table["fault"].to_pylist()
        assert "the reward has no turn" in surplus.table["fault"].to_pylist()

    def test_unpaid_rollout_is_a_note(self, tables: Ask) -> None:
        turns = played_turns()
        assert audited("rewards", tables(turns=[turns, turns], rewards=[rewarded(turns)])).severity == "note"

    def test_reused_turns_may_be_repaid(self, tables: Ask) -> None:
        turns = played_turns()
        paid, anew = rewarded(turns), compute_rewards(turns, RewardConfig(format_penalty=-0.5))
        assert audited("rewards", tables(turns=[turns, turns], rewards=[paid, anew])).severity == "note"
        finding = audited("rewards", tables(turns=[turns, turns], rewards=[paid, anew.slice(1)]))
        assert "the turn has no reward" in finding.table["fault"].to_pylist()
        assert finding.table["iteration"].unique().to_pylist() == [1]


class TestGroups:
    def stages(self) -> dict[str, pa.Table]:
        turns = played_turns(num_groups=4)
        rewards = rewarded(turns)
        selection = select_groups(turns, rewards, FilterConfig(keep=0.5))
        return {"selection": selection, "samples": samples_of(selection, rewards)}

    def test_training_on_dropped_group_is_fault(self, tables: Ask) -> None:
        stages = self.stages()
        kept = [row["group_id"] for row in stages["selection"].to_pylist() if row["kept"]]
        stages["selection"] = changed(
            stages["selection"],
            lambda _, row: {"kept": False, "reason": "dropped: a test"} if row["group_id"] == kept[0] else {},
        )
        finding = audited("groups", tables(**stages))
        assert finding.severity == "fault"
        assert [row["group_id"] for row in finding.table.to_pylist()] == [kept[0]]

    def test_contradicting_reason_is_a_fault(self, tables: Ask) -> None:
        stages = self.stages()
        stages["selection"] = changed(stages["selection"], lambda *_: {"reason": "dropped: a test"})
        assert audited("groups", tables(**stages)).severity == "fault"

    def test_surplus_groups_are_not_outscored(self, tables: Ask) -> None:
        turns = played_turns(num_groups=4)
        config = FilterConfig(strategy="none", num_wanted=1, should_drop_zero_variance=False)
        (fates,) = audited("groups", tables(selection=select_groups(turns, rewarded(turns), config))).table.to_pylist()
        assert (fates["kept"], fates["surplus"], fates["ranked_too_low"]) == (1, 3, 0)

    def test_an_empty_iteration_is_a_warning(self, tables: Ask) -> None:
        selection = changed(self.stages()["selection"], lambda *_: {"kept": False, "reason": "dropped: a test"})
        finding = audited("groups", tables(selection=selection))
        assert finding.severity == "warning"
        assert "nothing was kept in 1 iteration" in finding.summary


class TestErrors:
    ERROR: ClassVar = {"status": "env_error", "info": '{"error": "KeyError", "message": "\'x\'", "where": "step:12"}'}

    def test_errors_counted_by_message(self, tables: Ask) -> None:
        turns = changed(played_turns(), lambda n, _: self.ERROR if n in (2, 5) else {})
        finding = audited("errors", tables(turns=turns))
        assert finding.severity == "warning"
        (row,) = finding.table.to_pylist()
        assert (row["turns"], row["error"], row["message"], row["place"]) == (2, "KeyError", "'x'", "step:12")

    def test_training_on_one_is_a_fault(self, tables: Ask) -> None:
        turns = played_turns()
        rewards = rewarded(turns)
        samples = samples_of(select_groups(turns, rewards, FilterConfig(keep=1.0)), rewards)
        trained = samples["trajectory_id"][0].as_py()
        turns = changed(turns, lambda _, row: self.ERROR if row["trajectory_id"] == trained else {})
        finding = audited("errors", tables(turns=turns, samples=samples))
        assert finding.severity == "fault"
        assert [row["trajectory_id"] for row in finding.table.to_pylist()] == [trained]
