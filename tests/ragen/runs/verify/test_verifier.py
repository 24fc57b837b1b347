"""One stage recomputed and compared."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from starpo.flows.presets import preset
from starpo.ragen.config.device import Device
from starpo.ragen.runs import loaded_learner
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.stored_policy import complete_folder
from starpo.ragen.runs.verify.chosen import Visit
from starpo.ragen.runs.verify.scratch import Scratch
from starpo.ragen.runs.verify.verdict import CheckResult, Verdict
from starpo.ragen.runs.verify.verifier import Verifier
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.schemas.manifest import Stage
from tests.examples import example
from tests.ragen.runs.adapted import H200, Adapted, key_of

NEWER = replace(H200, driver="590.1", cuda="13.2")
QUESTION = {"model": "m", "prompt": "Is it?"}


def judged(_: Work, store: Store, __: ModelPlacement) -> Iterator[Output]:
    if store.answers.get(QUESTION) is None:
        store.answers.put(QUESTION, "YES")
    yield Output("rewards", example("rewards"), is_deterministic=False)


def test_missing_answers_give_not_shown(tmp_path: Path) -> None:
    work = Work(Stage(name="reward", version=1), ("rewards",), judged)
    stores = [Store(str(tmp_path / name)) for name in ("here", "elsewhere")]
    for store in stores:
        work.carry_out(store)
    (answer,) = Path(stores[1].url).glob("answers/??/*.json")
    answer.unlink()  # as in a store that the run was copied to
    visit = Visit(0, work.name, "reward", work.keys, work)
    for store, verdict in zip(stores, (Verdict.SAME, Verdict.NOT_SHOWN), strict=True):
        with Scratch(store) as scratch, ModelPlacement(is_here=True) as placement:
            (result,) = Verifier(store, scratch, preset("smoke"), placement).verify(visit)
        assert result.verdict is verdict, result
    assert "answers are not copied with a run" in result.detail
    assert not answer.exists()


def stored(_: Work, __: Store, ___: ModelPlacement) -> Iterator[Output]:
    yield Output("turns", example("turns"))


def played(work: Work, store: Store, placement: ModelPlacement) -> Iterator[Output]:
    assert Path(complete_folder(store, work.inputs["checkpoint"]), "model.safetensors").exists()
    yield Output("turns", example("turns"))


def verified(store: Store, learner: Adapted, monkeypatch: pytest.MonkeyPatch) -> dict[str, CheckResult]:
    """Verify a rollout whose checkpoint was dropped and is derived by this learner. Returns check -> result."""
    monkeypatch.setattr(loaded_learner, "load", lambda *_: lambda *_: learner)
    work = Work(Stage(name="rollout", version=1), ("turns",), played, inputs={"checkpoint": key_of(1)})
    replace(work, do=stored).carry_out(store)
    with Scratch(store) as scratch, ModelPlacement(is_here=True) as placement:
        visit = Visit(0, work.name, "rollout", work.keys, work)
        findings = Verifier(store, scratch, preset("smoke"), placement).verify(visit)
    return {finding.check: finding for finding in findings}


def test_derived_adapter_checkpoint_uses_base_weights(adapted_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    result = verified(adapted_store, Adapted(), monkeypatch)["turns"]
    assert result.verdict is Verdict.SAME, result


def retold(turns: pa.Table) -> pa.Table:
    place = turns.schema.get_field_index("observation")
    return turns.set_column(
        place, turns.schema.field(place), pc.binary_join_element_wise(turns["observation"], "!", "")
    )


def recomputed(
    store: Store, there: Device, here: Device, is_same: bool, monkeypatch: pytest.MonkeyPatch
) -> tuple[CheckResult, bool]:
    """Verify a rollout made there; return the result, and whether it was computed here."""
    is_computed = False

    def other(_: Work, __: Store, ___: ModelPlacement) -> Iterator[Output]:
        nonlocal is_computed
        is_computed = True
        turns = example("turns")
        yield Output("turns", turns if is_same else retold(turns))

    work = Work(Stage(name="rollout", version=1), ("turns",), stored)
    monkeypatch.setattr(Device, "here", lambda: there)
    work.carry_out(store)
    monkeypatch.setattr(Device, "here", lambda: here)
    with Scratch(store) as scratch, ModelPlacement(is_here=True) as placement:
        visit = Visit(0, work.name, "rollout", work.keys, replace(work, do=other))
        results = Verifier(store, scratch, preset("smoke"), placement).verify(visit)
    return next(finding for finding in results if finding.check == "turns"), is_computed


@pytest.mark.parametrize(
    ("there", "here", "is_same", "verdict", "detail"),
    [
        (H200, H200, True, Verdict.SAME, ""),
        (H200, H200, False, Verdict.DIFFERENT, ""),
        (H200, NEWER, True, Verdict.SAME, ""),
        (H200, NEWER, False, Verdict.NOT_SHOWN,
         "it was made with driver 580.95.05 (here 590.1), cuda 13.0 (here 13.2); "),
        (H200, Device(), True, Verdict.NOT_SHOWN,
         "made on an NVIDIA H200 (driver 580.95.05, CUDA 13.0, cuBLAS 13.1.0), here is a CPU"),
        (Device(), H200, True, Verdict.NOT_SHOWN, "made on a CPU, here is an NVIDIA H200 ("),
    ],
)  # fmt: skip
def test_recomputing_torch_output_needs_same_device(
    tmp_path: Path, there: Device, here: Device, is_same: bool, verdict: Verdict, detail: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    result, is_computed = recomputed(Store(str(tmp_path)), there, here, is_same, monkeypatch)
    assert result.verdict is verdict, result
    assert result.detail.startswith(detail)
    assert ("observation" in result.detail) == (is_computed and not is_same)
    assert is_computed == (there.name == here.name)


class Drifting(Adapted):
    """Learner whose result differs from the original, as on another machine or with another version of torch."""

    def save(self, folder: str, checkpoint_key: str) -> None:
        super().save(folder, checkpoint_key)
        Path(folder, "adapter_model.safetensors").write_text("drifted")


class Jittery(Drifting):
    """The same, and not deterministic, as on a GPU."""

    is_deterministic = False


@pytest.mark.parametrize(
    ("learner", "here", "reason"),
    [
        (Drifting, Device(), "gave another result"),
        (Jittery, Device(), "cannot be proved to be the original: the learner is not deterministic"),
        (Drifting, H200, "cannot be proved to be the original: it was made on a CPU, and here is an NVIDIA H200"),
    ],
)
def test_underivable_checkpoint_gives_not_shown(
    adapted_store: Store, learner: type[Adapted], here: Device, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Device, "here", lambda: here)
    results = verified(adapted_store, learner(), monkeypatch)
    for check in ("turns", "texts"):
        assert results[check].verdict is Verdict.NOT_SHOWN, results[check]
        assert reason in results[check].detail
        assert "Nothing was written" not in results[check].detail
        assert "--output" not in results[check].detail
