from pathlib import Path

import pytest

from starpo.flows.presets import preset
from starpo.ragen.config import precision
from starpo.ragen.config.load import apply_overrides, recorded_config
from starpo.ragen.config.processor import Processor
from starpo.ragen.config.starpo import StarPOConfig
from starpo.tasks.rollout import rollout

MODEL = {"policy": {"type": "pretrained", "name_or_path": "org/model", "fine_tuning": {}}}
PLAIN, FAST = Processor("A", ("avx2",)), Processor("A", ("avx2", "amx_bf16"))


def at(monkeypatch: pytest.MonkeyPatch, processor: Processor, *, has_gpu: bool = False) -> None:
    """Have this machine be another one."""
    monkeypatch.setattr(precision.Processor, "here", lambda: processor)
    monkeypatch.setattr(precision.Device, "has_gpu", lambda: has_gpu)


def dtypes(config: StarPOConfig) -> tuple[str | None, ...]:
    tuning = None if config.policy.type == "tiny" else config.policy.fine_tuning
    parts = (config.update, config.rollout.torch, tuning, config.teacher)  # type: ignore[attr-defined]
    return (config.precision, *(None if part is None else part.dtype for part in parts))


@pytest.mark.parametrize(
    ("processor", "has_gpu", "expected"),
    [(PLAIN, False, "float32"), (FAST, False, "bfloat16"), (PLAIN, True, "bfloat16")],
)
def test_auto_is_what_machine_has(
    monkeypatch: pytest.MonkeyPatch, processor: Processor, has_gpu: bool, expected: str
) -> None:
    at(monkeypatch, processor, has_gpu=has_gpu)
    teacher = {"teacher": {"type": "policy", "hint": "outcome"}}
    config = preset("bandit", {**MODEL, **teacher, "precision": "auto"})
    assert dtypes(config) == (expected,) * 5
    assert {config.model_dump(mode="json")["update"]["dtype"], config.precision} == {expected}


def test_embedded_policy_stays_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, FAST)
    assert dtypes(preset("bandit", {"precision": "auto"})) == ("float32", "float32", "float32", None, None)


def test_settings_without_it_are_unchanged() -> None:
    config = preset("bandit", MODEL)
    assert dtypes(config) == (None, "float32", "auto", "float32", None)
    assert "precision" not in config.model_dump(mode="json")


def test_record_keeps_what_was_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine reads the dtype, and its own runs have other keys."""
    at(monkeypatch, FAST)
    record = preset("bandit", {**MODEL, "precision": "auto"}).model_dump(mode="json")
    at(monkeypatch, PLAIN)
    config, here = recorded_config("r", record, ""), preset("bandit", {**MODEL, "precision": "auto"})
    assert config.model_dump(mode="json") == record
    assert config.at(3) == config
    assert rollout(0, config, "c").keys != rollout(0, here, "c").keys


def test_dtype_of_a_part_has_precedence() -> None:
    config = preset("bandit", {**MODEL, "precision": "bfloat16", "update.dtype": "float32"})
    assert dtypes(config) == ("bfloat16", "float32", "bfloat16", "bfloat16", None)


def test_later_layer_decides(tmp_path: Path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text('extends = ["bandit"]\nprecision = "bfloat16"\n')
    second.write_text(f'extends = ["{first}"]\n[update]\ndtype = "float32"\n')
    assert dtypes(preset(str(second), MODEL))[:3] == ("bfloat16", "float32", "bfloat16")
    assert dtypes(preset(str(second), {**MODEL, "precision": "bfloat16"}))[:3] == ("bfloat16",) * 3
    whole = preset(str(second), MODEL)  # every dtype is set here
    assert dtypes(apply_overrides(whole, {"precision": "float32"})) == (*["float32"] * 4, None)
    assert dtypes(apply_overrides(whole, {"precision": None})) == (None, "float32", "auto", "float32", None)


def test_other_engines_have_their_own() -> None:
    config = preset("bandit", {**MODEL, "precision": "bfloat16", "rollout.engine": "vllm"})
    assert (config.rollout.torch.dtype, config.rollout.vllm.dtype) == ("auto", "auto")  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", ["auto", "bfloat16"])
def test_precision_left_unfilled_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    at(monkeypatch, FAST)
    given = preset("bandit", MODEL)
    with pytest.raises(ValueError, match=f"precision = '{value}' has not been filled in"):
        StarPOConfig(environment=given.environment, policy=given.policy, precision=value)  # type: ignore[arg-type]
    filled = preset("bandit", {**MODEL, "precision": value})
    assert StarPOConfig.model_validate(vars(filled)) == filled


def test_lists_stay_tuples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings are read as JSON, in which a list is a tuple, whatever fills them in first."""
    at(monkeypatch, FAST)
    assert preset("bandit", {"precision": "auto", "evaluation.env_seeds": [1, 2]}).evaluation.env_seeds == (1, 2)


def test_unknown_precision_is_named() -> None:
    with pytest.raises(Exception, match=r"precision = 'fp8' \(override\): should be 'auto', 'float32' or 'bfloat16'"):
        preset("bandit", {"precision": "fp8"})
