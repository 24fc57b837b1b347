"""Runs with a teacher: every stage verified, shared, continued; and the policy never sees what its teacher sees."""

from pathlib import Path
from typing import Any

import pytest

from starpo.flows.api.objectives import compare_objectives
from starpo.flows.console.start import train_here
from starpo.flows.console.terminal import Console
from starpo.flows.presets import method, preset
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.core.errors import ConfigError, LearnerError
from starpo.ragen.learning.distillation.scoring import LoadedTeacher
from starpo.ragen.readiness import check_ready
from starpo.ragen.runs.metrics import stored_metrics
from starpo.ragen.store import Store
from starpo.tasks.loop.verify import verify_run
from tests.integration.run_digests import digests
from tests.teacher_server import serving

pytestmark = pytest.mark.timeout(600)

SMALL = {
    "policy.hidden_size": 32, "policy.intermediate_size": 64, "policy.demonstration_turns": 200,
    "policy.warm_start_steps": 20, "evaluation.num_prompts": 2, "evaluation.every": 2, "evaluation.variants": {},
    "diagnostics.probe_every": 0, "filter.should_drop_zero_variance": False,
}  # fmt: skip
PLAN = {**method("opsd"), "teacher.checkpoint": "current"}
OF_RUN = {
    "teacher.type": "run", "teacher.checkpoint": "plain:2",
    "update.distillation_coefficient": 1.0, "update.reward_coefficient": 0.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Store with the run `plain`, without a teacher, and `plan`, which its own plans teach."""
    store = Store(str(tmp_path_factory.mktemp("taught")))
    train(store, "plain", {})
    train(store, "plan", PLAN)
    return store


def train(store: Store, name: str, overrides: dict[str, Any]) -> str:
    return train_here(store, name, "smoke", preset("smoke", SMALL | overrides), Console(quiet=True))


def keys(store: Store, run: str, stage: str, kind: str) -> list[str]:
    return [stages[stage][kind] for stages in store.runs.iterations(run).values() if stage in stages]


def test_every_stage_is_verified(store: Store) -> None:
    verification = verify_run(store, "plan")
    assert verification.outcome == "verified"
    assert {(one.stage, one.check) for one in verification.findings} >= {
        ("teacher", "teacher_logprobs"),
        ("teacher", "metrics"),
        ("update", "checkpoint"),
    }


def test_policy_never_sees_a_hint(store: Store) -> None:
    hint_ids = make_tokenizer().encode("Hint:", add_special_tokens=False)
    for turns, scored in zip(
        keys(store, "plan", "rollout", "turns"), keys(store, "plan", "teacher", "teacher_logprobs"), strict=True
    ):
        assert min(store.read_table("teacher_logprobs", scored)["num_hint_tokens"].to_pylist()) > len(hint_ids)
        prompts = store.read_table("turns", turns)["prompt_ids"].to_pylist()
        assert not any(" ".join(map(str, hint_ids)) in " ".join(map(str, prompt)) for prompt in prompts)
    assert keys(store, "plan", "rollout", "turns")[0] == keys(store, "plain", "rollout", "turns")[0]


def test_teacher_acts_and_is_measured(store: Store) -> None:
    updates = [keys(store, run, "update", "checkpoint")[0] for run in ("plan", "plain")]
    assert updates[0] != updates[1]
    scored = stored_metrics(store, keys(store, "plan", "teacher", "metrics")[0])
    assert scored["teacher/kl"] > 0
    assert 0 < scored["teacher/agreement"] < 1
    of_update = stored_metrics(store, keys(store, "plan", "update", "metrics")[0])
    assert of_update["update/teacher_kl"] == pytest.approx(scored["teacher/kl"], abs=0.02)


def test_measured_teacher_changes_no_key(store: Store) -> None:
    train(store, "measured", {"teacher.type": "policy", "teacher.hint": "outcome"})
    for stage, kind in (("rollout", "turns"), ("update", "checkpoint")):
        assert keys(store, "measured", stage, kind) == keys(store, "plain", stage, kind)
    assert len(keys(store, "measured", "teacher", "metrics")) == 2


@pytest.mark.thorough
def test_each_rollout_is_scored_once(store: Store) -> None:
    train(store, "online", {**OF_RUN, "online_k": 2})
    assert len(set(keys(store, "online", "teacher", "teacher_logprobs"))) == 1
    assert len(set(keys(store, "online", "update", "checkpoint"))) == 2
    assert verify_run(store, "online").outcome == "verified"


def test_run_ended_by_teacher_is_continued(
    store: Store, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    again, score = Store(str(tmp_path_factory.mktemp("again"))), LoadedTeacher.score
    calls: list[int] = []

    def second_fails(self: LoadedTeacher, *arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise LearnerError("the teacher has taken 9.0 s for this rollout and has not finished")
        return score(self, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(LoadedTeacher, "score", second_fails)
        with pytest.raises(LearnerError, match="the teacher has taken"):
            train(again, "plan", PLAN)
    state = again.runs.state("plan")
    assert state is not None
    assert state.status == "failed"
    train(again, "plan", PLAN)
    assert digests(again, "plan") == digests(store, "plan")


def test_lab_measures_with_the_teacher(store: Store) -> None:
    lab = compare_objectives(store, "plan", ["grpo", "opsd"])
    assert {"run", "grpo", "opsd"} <= set(lab.comparison.values)
    without = compare_objectives(store, "plain", ["grpo", "opsd"])
    assert "needs a teacher, and none has scored this rollout" in without.left_out["opsd"]


def test_server_teaches_as_its_model_does(store: Store) -> None:
    train(store, "of-run", OF_RUN)
    weights = {name: value for name, value in OF_RUN.items() if name.startswith("update.")}
    with serving(store.local_folder("checkpoint", keys(store, "plain", "update", "checkpoint")[-1])) as server:
        settings = weights | {"teacher.type": "server", "teacher.base_url": server.url, "teacher.model": "a-model"}
        train(store, "served", settings)
        num_asked = len(server.requests)
        verification = verify_run(store, "served")
        train(store, "served-again", settings)
        assert len(server.requests) == num_asked + 1  # what was said is stored; a run begins with a question to each
    here, there = (
        store.read_table("teacher_logprobs", keys(store, run, "teacher", "teacher_logprobs")[0])
        for run in ("of-run", "served")
    )
    assert here["is_mode"] == there["is_mode"]
    flat = [table["logprobs"].combine_chunks().flatten().to_pylist() for table in (here, there)]
    assert flat[1] == pytest.approx(flat[0], abs=1e-4)
    assert {one.verdict.value for one in verification.findings if one.stage != "teacher"} == {"same"}
    assert verification.outcome == "not shown"
    assert keys(store, "served", "update", "checkpoint") == keys(store, "served-again", "update", "checkpoint")


@pytest.fixture
def stranger(tmp_path: Path) -> str:
    """Folder of a model with another vocabulary."""
    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["another"])
    make_model(preset("smoke", SMALL).policy, tokenizer).save_pretrained(tmp_path)  # type: ignore[arg-type]
    tokenizer.save_pretrained(tmp_path)
    return str(tmp_path)


@pytest.mark.parametrize("kind", ["model", "run"])
def test_foreign_vocabulary_is_refused_at_start(store: Store, stranger: str, kind: str) -> None:
    lessons = {"update.distillation_coefficient": 1.0, "teacher.type": kind}
    if kind == "run":
        settings = {name: value for name, value in SMALL.items() if not name.startswith("policy.")}
        settings |= {"policy": {"type": "pretrained", "name_or_path": stranger}, "iterations": 0}
        train_here(store, "stranger", "smoke", preset("smoke", settings), Console(quiet=True))
        lessons["teacher.checkpoint"] = "stranger:0"
    else:
        lessons["teacher.name_or_path"] = stranger
    name = "checkpoint = 'stranger:0'" if kind == "run" else f"name_or_path = '{stranger}'"
    with pytest.raises(ConfigError, match=rf"^smoke: teacher.{name} has another vocabulary than the policy: "):
        train(store, f"taught-by-{kind}", lessons)
    assert f"taught-by-{kind}" not in store.runs.names()
    with pytest.raises(ConfigError, match="another vocabulary"):
        check_ready(preset("smoke", {**SMALL, **lessons}), "mine", store=store)
    assert check_ready(preset("smoke", {**SMALL, **lessons, "iterations": 0}), "mine", store=store) is None


def test_stored_vocabulary_is_checked_too(store: Store, stranger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on elsewhere may not have its model there, only its first checkpoint."""
    monkeypatch.setattr("starpo.flows.console.start.check_ready", lambda *_, **__: None)
    wrong = {"teacher.type": "model", "teacher.name_or_path": stranger, "update.distillation_coefficient": 1.0}
    with pytest.raises(ConfigError, match=f"'{stranger}' has another vocabulary than the policy: "):
        train(store, "wrong", wrong)
    assert "rollout" not in store.runs.iterations("wrong")[0]


def test_absent_checkpoint_is_refused(store: Store) -> None:
    with pytest.raises(ConfigError, match="run 'plain' has no such checkpoint; it has 0 to 2"):
        train(store, "lacking", {**OF_RUN, "teacher.checkpoint": "plain:9"})
    assert "lacking" not in store.runs.names()


TOP_K = {"update.distillation": "forward_kl", "teacher.top_k": 8}


def test_top_tokens_are_stored_and_verified(store: Store) -> None:
    train(store, "top-k", {**OF_RUN, **TOP_K, "online_k": 2})
    (top_tokens,) = set(keys(store, "top-k", "teacher", "teacher_top_tokens"))
    rows, turns = (
        {(row["trajectory_id"], row["turn"]): row for row in store.read_table(kind, key).to_pylist()}
        for kind, key in (
            ("teacher_top_tokens", top_tokens),
            ("turns", keys(store, "top-k", "rollout", "turns")[0]),
        )
    )
    assert all(len(row["token_ids"]) == 8 * len(turns[place]["response_ids"]) for place, row in rows.items())
    verification = verify_run(store, "top-k")
    assert verification.outcome == "verified"
    assert ("teacher", "teacher_top_tokens") in {(one.stage, one.check) for one in verification.findings}
    updates = [keys(store, run, "update", "checkpoint")[0] for run in ("plain", "top-k")]
    assert updates[0] != updates[1]
    values = stored_metrics(store, keys(store, "top-k", "teacher", "metrics")[0])
    assert 8 / 449 < values["teacher/top_k_mass"] <= 1  # what 8 of the vocabulary have at least


def test_lab_needs_stored_top_tokens(store: Store) -> None:
    without = compare_objectives(store, "plan", ["grpo"], overrides=TOP_K)
    assert "needs the teacher's most probable tokens" in " ".join(without.left_out.values())
