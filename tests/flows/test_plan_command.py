"""`starpo plan`, and `starpo train` of a run that does not fit."""

import json
import re
import resource
from pathlib import Path

import pytest

from starpo.flows.cli.plan import plan
from starpo.flows.cli.train import train
from starpo.flows.presets import preset
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.sizing import device as devices
from starpo.ragen.sizing.device import GIB
from starpo.ragen.sizing.fit import DoesNotFitError
from starpo.tasks.loop.memory_check import check_memory
from tests.flows.command import ragen


@pytest.fixture
def small_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this machine appear to have one GPU of 12 GiB."""
    monkeypatch.setattr(devices, "_gpu_memories", lambda: [12.0 * GIB])


def planned(name: str, capsys: pytest.CaptureFixture[str], *settings: str, **given: object):
    plan(name, list(settings), **given, as_json=True)  # type: ignore[arg-type]
    return json.loads(capsys.readouterr().out)


def test_a_plan_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    plan_facts = planned("sokoban-paper", capsys, gpu_memory="80GB")
    assert plan_facts["parameters"] == 494_032_768
    assert plan_facts["machine"] == {"memory_bytes": 80 * GIB, "number": 1, "is_cpu": False}
    assert plan_facts["seconds"] is None
    assert (plan_facts["gpus_needed"], plan_facts["fits"], plan_facts["reasons"]) == (1, True, [])
    parts = {part["name"]: part["size_bytes"] for parts in plan_facts["memory"].values() for part in parts}
    assert {"policy: weights", "policy: optimiser", "critic: weights", "activations", "logits"} <= set(parts)
    assert parts["engine: weights and cache"] == 0.25 * 80 * GIB
    assert parts["policy: weights"] == 4 * 494_032_768
    assert plan_facts["storage_bytes"]["checkpoints_kept"] == 9


def test_page_states_peaks_of_paper_presets(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs/plan.md").read_text(encoding="utf-8")
    for name, sentence in (
        ("sokoban-paper", "`starpo plan sokoban-paper --gpu-memory 80GB` reports a peak of {:.0f} GiB"),
        ("sokoban-paper-3b-lora", "`sokoban-paper-3b-lora` {:.0f} GiB"),
    ):
        plan(name, gpu_memory="80GB")
        (peak,) = re.findall(r"peak +([\d.]+)", capsys.readouterr().out)
        assert sentence.format(float(peak)) in page


def test_a_plan_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    plan("sokoban-paper", gpu_memory="80GB")
    output = capsys.readouterr().out
    for part in (
        "memory of one GPU",
        "494,032,768 parameters",
        "9 checkpoints kept",
        "It fits.",
        "--speed-of RUN takes that of a stored run",
    ):
        assert part in output


@pytest.mark.usefixtures("small_gpu")
def test_cpu_plan_uses_run_cores(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARPO_THREADS", "7")
    assert planned("smoke", capsys, gpus=0)["machine"]["number"] == 7
    machine = planned("smoke", capsys, gpus=0, gpu_memory="3GB")["machine"]
    assert machine == {"memory_bytes": 3 * GIB, "number": 7, "is_cpu": True}


def test_unknown_gpu_memory_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_gpu_memories", list)
    with pytest.raises(ConfigError, match="no GPU whose memory could be taken: give --gpu-memory"):
        plan("smoke", gpus=2)


def test_oversized_plan_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    plan_facts = planned("sokoban-paper", capsys, gpu_memory="24GB")
    assert not plan_facts["fits"]
    assert "each has 24.0 GiB" in plan_facts["reasons"][0]
    plan("sokoban-paper", gpu_memory="24GB")
    assert "with update.activation_checkpointing" in capsys.readouterr().out.replace("\n", " ")


def test_default_device_is_this_machine(capsys: pytest.CaptureFixture[str], small_gpu: None) -> None:
    plan_facts = planned("sokoban-paper", capsys)
    assert plan_facts["machine"]["memory_bytes"] == 12 * GIB
    assert not plan_facts["fits"]


@pytest.mark.usefixtures("small_gpu")
def test_oversized_training_refused_before_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("starpo.flows.server.start", lambda *_: pytest.fail("a server was started"))
    with pytest.raises(DoesNotFitError, match=r"does not fit: it needs about .* GiB per GPU, but each has 12.0 GiB"):
        train("sokoban-paper", store=str(tmp_path / "store"))
    assert not (tmp_path / "store").exists()


@pytest.mark.usefixtures("small_gpu")
def test_the_check_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    config = preset("sokoban-paper")
    with pytest.raises(DoesNotFitError):
        check_memory(config)
    monkeypatch.setenv("STARPO_SHOULD_CHECK_MEMORY", "false")
    check_memory(config)


def test_small_address_space_refused_before_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in (2 * 2**30, 3 * 2**30, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        if limit == 2 * 2**30:
            with pytest.raises(DoesNotFitError, match=r"2\.0 GiB of address space .* at least 3 GiB: run `ulimit"):
                check_memory(preset("smoke"))
        else:
            check_memory(preset("smoke"))


@pytest.mark.usefixtures("small_gpu")
def test_cluster_memory_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    check_memory(preset("sokoban-paper"))


@pytest.mark.usefixtures("small_gpu")
def test_unknown_policy_sizes_not_judged(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    check_memory(preset("sokoban-paper", {"policy.name_or_path": str(tmp_path)}))


def test_an_unknown_policy_is_one_message() -> None:
    answer = ragen("plan", "sokoban-paper", "--set", "policy.name_or_path=Qwen/Qwen9")
    assert answer.returncode == 1
    assert answer.stderr.startswith("error: policy.name_or_path = 'Qwen/Qwen9': neither a folder with a config.json")
    assert "Traceback" not in answer.stderr


def test_small_parts_not_shown_as_zero(capsys: pytest.CaptureFixture[str]) -> None:
    plan("smoke")
    out = capsys.readouterr().out
    assert "0.00" not in out
    assert " 0.0 " not in out
    assert " MiB" in out


def test_prompts_beyond_context_do_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    plan_facts = planned("smoke", capsys, "rollout.max_context_tokens=72")
    assert not plan_facts["fits"]
    assert plan_facts["reasons"][-1].startswith(
        "environment: first prompts of 24 tokens and rollout.max_response_tokens"
    )
