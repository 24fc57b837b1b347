"""Panels with states seen in training: found by digest through the lineage, with success on seen and unseen ones."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from starpo.ragen.agents.policy.initial_states import write_states
from starpo.ragen.envs.variants import VARIANTS
from starpo.ragen.evidence.audit.contamination import contaminated_panels
from starpo.ragen.evidence.audit.finding import Finding
from starpo.ragen.evidence.audit.stored import open_database
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage
from tests.examples import example, put_folder

from .conftest import Ask, played_turns

CHECKPOINTS = ("0" * 32, "1" * 32)
MIXTURE = {
    "type": "mixture",
    "parts": {"arms": {"environment": {"type": "bandit"}}, "rooms": {"environment": {"type": "sokoban"}}},
}


def digest(letter: str) -> str:
    return letter * 16


class Evaluated:
    """Store with a policy that was shown states a and b, trained on c and d, and then evaluated."""

    def __init__(self, folder: Path, *, is_known: bool = True) -> None:
        self.store = Store(str(folder / "store"))
        self.store.runs.create("mine", flow="starpo", preset=None, config={})
        first = {"settings": {"policy": {"type": "tiny"}}, "inputs": {}, "seed": 0}
        self._put_checkpoint(CHECKPOINTS[0], "warm_start", first, "ab" if is_known else None)
        rows = [
            {**row, "initial_state_digest": digest("cd"[int(row["group_id"][-1])])}
            for row in played_turns(num_groups=2).to_pylist()
        ]
        turns = pa.Table.from_pylist(rows, schema=played_turns().schema)
        played = {"settings": {}, "inputs": {"checkpoint": CHECKPOINTS[0]}, "seed": 0}
        self.store.put_table("turns", turns, Facts(key="a" * 32, stage=Stage(name="rollout", version=1), **played))
        made = {"settings": {}, "inputs": {"checkpoint": CHECKPOINTS[0], "turns": "a" * 32}, "seed": 0}
        self._put_checkpoint(CHECKPOINTS[1], "update", made, None)
        self.store.runs.record_stage("mine", 0, "warm_start", {"checkpoint": CHECKPOINTS[0]})
        self.store.runs.record_stage("mine", 0, "rollout", {"turns": "a" * 32})

    def evaluate(
        self,
        iteration: int,
        states: dict[str, bool],
        apart: str = "",
        failed: str = "",
        env: str = "sokoban",
        checkpoint: int = 1,
        tags: dict[str, str] | None = None,
        environment: dict[str, Any] | None = None,
    ) -> None:
        """Store an evaluation with `states`: state -> success.

        States in `apart` are measured separately, those in `failed` ended in an error; `tags` maps states to parts of
        the mixture `env`. The environment of the panel is `environment`, by default the type `env` with default
        settings.
        """
        rows: list[dict[str, Any]] = [
            {
                **example("episodes").to_pylist()[0],
                "cell": f"{env}/seen" if state in apart else env,
                "env": (tags or {}).get(state, env),
                "env_seed": number,
                "initial_state_digest": digest(state),
                "success": success,
                "status": "env_error" if state in failed else "ok",
            }
            for number, (state, success) in enumerate(states.items())
        ]
        episodes = pa.Table.from_pylist(rows, schema=example("episodes").schema)
        settings = {"environment": environment or {"type": env}}
        facts = {"settings": settings, "inputs": {"checkpoint": CHECKPOINTS[checkpoint]}, "seed": 0}
        key = f"{iteration:032d}"
        self.store.put_table("episodes", episodes, Facts(key=key, stage=Stage(name="evaluate", version=3), **facts))
        self.store.runs.record_stage("mine", iteration, f"evaluate:{env}", {"episodes": key})

    def finding(self) -> Finding:
        with open_database(self.store, ["mine"]) as database:
            return contaminated_panels(database)

    def _put_checkpoint(self, key: str, stage: str, facts: dict[str, Any], states: str | None) -> None:
        with self.store.new_folder() as folder:
            (folder / "weights").write_text(key)
            if states is not None:
                write_states(folder, map(digest, states))
            put_folder(self.store, "checkpoint", folder, Facts(key=key, stage=Stage(name=stage, version=1), **facts))


def test_a_clean_panel(tmp_path: Path) -> None:
    run = Evaluated(tmp_path)
    run.evaluate(1, {"e": True, "f": False, "1": False}, failed="1")
    finding = run.finding()
    assert finding.severity == "note"
    assert finding.summary == "None of 1 evaluations starts from a state of training."
    (row,) = finding.table.to_pylist()
    assert (row["states"], row["seen"], row["share"], row["unknown_origins"]) == (3, 0, 0.0, 0)
    assert (row["success_seen"], row["success_unseen"]) == (None, 0.5)


def test_seen_states_apart_are_a_warning(tmp_path: Path) -> None:
    run = Evaluated(tmp_path)
    run.evaluate(1, {"a": True, "c": True, "e": True, "f": False, "1": False}, apart="ac")
    finding = run.finding()
    assert finding.severity == "warning"
    (row,) = finding.table.to_pylist()
    assert (row["panel"], row["states"], row["seen"], row["demonstrated"], row["mixed_in"]) == ("sokoban", 5, 2, 1, 0)
    assert (row["share"], row["success_seen"], row["success_unseen"]) == (0.4, 1.0, 0.3333)
    assert "up to 2 of 5 states (40%; sokoban, iteration 1: success 1 on them, 0.3333 on the others)" in finding.summary


def test_counted_seen_states_are_a_fault(tmp_path: Path) -> None:
    run = Evaluated(tmp_path)
    run.evaluate(1, {"d": True, "e": False})
    finding = run.finding()
    assert finding.severity == "fault"
    assert (finding.table["mixed_in"].to_pylist(), finding.table["example"].to_pylist()) == ([1], [digest("d")])
    assert finding.summary.endswith("; success of 1 counts them.")


def test_training_counted_up_to_policy(tmp_path: Path) -> None:
    """The first checkpoint was shown a and b, but not yet trained on c."""
    run = Evaluated(tmp_path)
    run.evaluate(0, {"a": True, "c": True}, apart="a", checkpoint=0)
    (row,) = run.finding().table.to_pylist()
    assert (row["seen"], row["mixed_in"]) == (1, 0)


def test_panel_with_few_states_covers_all(tmp_path: Path) -> None:
    run = Evaluated(tmp_path)
    run.evaluate(1, {"c": True, "e": False}, env="bandit")
    finding = run.finding()
    assert finding.severity == "note"
    assert finding.summary == "A panel of bandit covers every state there is to train on."
    assert finding.table["covers_all"].to_pylist() == [True]


@pytest.mark.parametrize("is_part", [False, True])
def test_few_state_task_is_uncontaminated(tmp_path: Path, is_part: bool) -> None:
    """The map of FrozenLake-v1 is always the same; that depends on the settings, not on the suite."""
    pytest.importorskip("gymnasium", reason="pip install 'starpo[gymnasium]'")
    run, lake = Evaluated(tmp_path), VARIANTS["GymFrozenLake"].settings.model_dump(mode="json")
    if is_part:
        mixture = {"type": "mixture", "parts": {"lake": {"environment": lake}}}
        run.evaluate(1, {"c": True}, env="mixture", tags={"c": "lake"}, environment=mixture)
    else:
        run.evaluate(1, {"c": True}, env="gymnasium", environment=lake)
    finding = run.finding()
    assert (finding.severity, finding.table["covers_all"].to_pylist()) == ("note", [True])


def test_seen_states_of_an_unknown_environment(tmp_path: Path) -> None:
    run = Evaluated(tmp_path)
    run.evaluate(1, {"c": True, "e": False}, env="gone", environment={"type": "gone"})
    finding = run.finding()
    assert (finding.severity, finding.table["covers_all"].to_pylist()) == ("warning", [None])


@pytest.mark.parametrize("states", ["cde", "edc"])
def test_mixture_parts_judged_separately(tmp_path: Path, states: str) -> None:
    """All bandits start alike, so c must occur in training; a room need not, so counting d is a fault."""
    run, tags = Evaluated(tmp_path), {"c": "arms", "d": "rooms", "e": "rooms"}
    run.evaluate(1, dict.fromkeys(states, True), apart="d", env="mixture", tags=tags, environment=MIXTURE)
    run.evaluate(2, dict.fromkeys(states, True), env="mixture", tags=tags, environment=MIXTURE)
    finding = run.finding()
    assert finding.severity == "fault"
    assert [(row["iteration"], row["panel"], row["mixed_in"]) for row in finding.table.to_pylist()] == [
        (2, "mixture/rooms", 1)
    ]
    assert finding.summary.startswith("2 of 2 evaluations start from states of training: ")
    assert "; success of 1 counts them. A panel of mixture/arms covers every state" in finding.summary


def test_unknown_training_is_reported(tmp_path: Path) -> None:
    run = Evaluated(tmp_path, is_known=False)
    run.evaluate(1, {"e": True})
    finding = run.finding()
    assert finding.table["unknown_origins"].to_pylist() == [1]
    assert finding.summary == (
        "None of 1 evaluations starts from a known state of training. "
        "For 1 evaluations, not all initial states of training are known."
    )


def test_episodes_without_a_lineage_are_unknown(tables: Ask) -> None:
    finding = contaminated_panels(tables(episodes=example("episodes")))
    assert finding.severity == "note"
    assert "not all initial states of training are known" in finding.summary
