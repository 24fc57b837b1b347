"""The stage `warm_start`: whether its result is marked as deterministic."""

from pathlib import Path

import pytest
import torch

from starpo.flows.presets import preset
from starpo.ragen.learning import imitation
from starpo.ragen.store import Store
from starpo.tasks.warm_start import warm_start

POLICY = Path(__file__).parents[1] / "golden" / "checkpoint"


@pytest.mark.parametrize(
    ("fine_tuning", "has_gpu", "is_deterministic"),
    [({}, True, False), ({}, False, True), (None, True, True)],
    ids=["fine-tuned on a GPU", "fine-tuned on the CPU", "copied"],
)
def test_what_a_gpu_fine_tuned_need_not_come_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fine_tuning: dict | None, has_gpu: bool, is_deterministic: bool
) -> None:
    def fine_tune(policy: object, lessons: object, folder: Path, *_: object) -> dict[str, float]:
        (folder / "config.json").write_text("{}")
        return {}

    monkeypatch.setattr(imitation, "fine_tune", fine_tune)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    settings = {"type": "pretrained", "name_or_path": str(POLICY)}
    config = preset("smoke", {"policy": settings | ({} if fine_tuning is None else {"fine_tuning": fine_tuning})})
    work = warm_start(config)
    (made,) = work.do(work, Store(str(tmp_path)))
    assert made.is_deterministic == is_deterministic
