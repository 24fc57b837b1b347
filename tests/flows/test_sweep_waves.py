"""Cells of a dropped checkpoint wait for the first of them, which derives it again."""

from types import SimpleNamespace

from starpo.flows.eval_sweep import _waves


def cell(checkpoint: str, seed: int) -> SimpleNamespace:
    return SimpleNamespace(cell=SimpleNamespace(checkpoint=checkpoint, seed=seed))


def test_a_dropped_checkpoint_is_in_the_first_wave_once() -> None:
    missing = [cell(key, seed) for key in ("kept", "dropped", "gone") for seed in (0, 1, 2)]
    first, later = _waves(missing, ["dropped", "gone"])
    assert [(c.cell.checkpoint, c.cell.seed) for c in first] == [
        ("kept", 0), ("kept", 1), ("kept", 2), ("dropped", 0), ("gone", 0),
    ]  # fmt: skip
    assert [(c.cell.checkpoint, c.cell.seed) for c in later] == [
        ("dropped", 1), ("dropped", 2), ("gone", 1), ("gone", 2),
    ]  # fmt: skip


def test_kept_checkpoints_wait_for_nothing() -> None:
    missing = [cell("kept", seed) for seed in (0, 1)]
    assert list(_waves(missing, [])) == [missing]
