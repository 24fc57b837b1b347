"""Settings of teachers that cannot be carried out are refused before a run starts, and the policy sees no hint."""

from typing import Any

import pytest

from starpo.flows.presets import preset
from starpo.ragen.config.teachers import TEACHERS
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.sokoban.environment import Sokoban

PLAN = {"teacher.type": "policy", "teacher.hint": "plan"}
TOP_K = {"update.distillation_coefficient": 1.0, "update.distillation": "forward_kl"}
SERVER = {"teacher.type": "server", "teacher.base_url": "http://127.0.0.1:8000/v1", "teacher.model": "large"}


def test_there_is_no_teacher_by_default() -> None:
    assert preset("smoke").teacher is None
    assert set(TEACHERS) == {"model", "run", "policy", "server"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"update.distillation_coefficient": 1.0}, "weighs what a teacher says, and there is none: set teacher.type"),
        ({"update.reward_coefficient": 0.0}, "set distillation_coefficient, or reward_coefficient = 1"),
        (
            {**TOP_K, **PLAN},
            "teacher.top_k = 0 stores none: set it, for instance to 32",
        ),
        (
            {**TOP_K, "update.observation_coefficient": 1.0},
            "distillation = 'forward_kl' and observation_coefficient add tokens: set one",
        ),
        ({"teacher.type": "policy"}, "has nothing to teach: set hint = 'plan' or 'outcome'"),
        ({**SERVER, "rollout.temperature": 0.7}, "at rollout.temperature = 0.7: set that to 1, or teacher.type"),
        (
            {**SERVER, "agent.observation": "image", "policy.patch_size": 32, "evaluation.variants": {}},
            "set teacher.type = 'model', or agent.observation = 'text'",
        ),
        ({**SERVER, "teacher.base_url": "http://me:secret@host/v1"}, "teacher.base_url"),
        ({**SERVER, "teacher.dtype": "bfloat16"}, "teacher.dtype"),
        ({"teacher.type": "oracle"}, "no such type; known: model, module:attribute, policy, run, server"),
        ({"teacher.type": "mine:Teacher"}, "there is no teacher of type 'mine:Teacher'"),
        ({"teacher.type": "run", "teacher.checkpoint": "mine"}, "teacher.checkpoint"),
        ({**PLAN, "teacher.hint_text": "Psst"}, "should contain {hint} once, where the hint goes; found it 0 times"),
        (
            {**PLAN, "agent.system_prompt": "You know: {hint}"},
            "agent.system_prompt contains {hint}, which is the teach",
        ),
        ({**PLAN, "agent.system_prompt": "Hint: go left"}, "agent.system_prompt contains 'Hint:', which is the teach"),
        (
            {**PLAN, "rollout.search.type": "best_of", "update.search_rows": "weigh"},
            "leave rollout.search out, or set teacher.hint = 'outcome'",
        ),
        (
            {**PLAN, "agent.observation": "image", "policy.patch_size": 32, "evaluation.variants": {}},
            "set teacher.hint = 'none', or agent.observation = 'text'",
        ),
    ],
)
def test_what_cannot_be_taught_is_refused(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        preset("smoke", overrides)
    assert message in str(refusal.value)


def test_plan_needs_a_demonstrator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sokoban, "demonstrator", "")
    with pytest.raises(ConfigError, match=r"'sokoban' has none: set teacher\.hint = 'outcome'"):
        preset("smoke", PLAN)


def test_local_model_has_its_digest(tmp_path: Any) -> None:
    (tmp_path / "config.json").write_text("{}")
    one = preset("smoke", {"teacher.type": "model", "teacher.name_or_path": str(tmp_path)}).teacher
    (tmp_path / "config.json").write_text('{"a": 1}')
    other = preset("smoke", {"teacher.type": "model", "teacher.name_or_path": str(tmp_path)}).teacher
    assert len(one.digest) == 16  # type: ignore[union-attr]
    assert one != other
