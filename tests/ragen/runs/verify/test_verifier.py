"""One stage recomputed and compared."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from starpo.flows.presets import preset
from starpo.ragen.runs import placement
from starpo.ragen.runs.stored_policy import complete_folder
from starpo.ragen.runs.verify.chosen import Visit
from starpo.ragen.runs.verify.scratch import Scratch
from starpo.ragen.runs.verify.verdict import CheckResult, Verdict
from starpo.ragen.runs.verify.verifier import Verifier
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.schemas.manifest import Stage
from tests.examples import example
from tests.ragen.runs.adapted import Adapted, key_of

QUESTION = {"model": "m", "prompt": "Is it?"}


def judged(_: Work, store: Store) -> Iterator[Output]:
    if store.answers.get(QUESTION) is None:
        store.answers.put(QUESTION, "YES")
    yield Output("rewards", example("rewards"), is_deterministic=False)


def test_what_rests_on_answers_that_are_not_here_is_not_shown_and_nobody_is_asked(tmp_path: Path) -> None:
    work = Work(Stage(name="reward", version=1), ("rewards",), judged)
    stores = [Store(str(tmp_path / name)) for name in ("here", "elsewhere")]
    for store in stores:
        work.carry_out(store)
    (answer,) = Path(stores[1].url).glob("answers/??/*.json")
    answer.unlink()  # as in a store that the run was copied to
    visit = Visit(0, work.name, "reward", work.keys, work)
    for store, verdict in zip(stores, (Verdict.SAME, Verdict.NOT_SHOWN), strict=True):
        with Scratch(store) as scratch:
            (found,) = Verifier(store, scratch, preset("smoke"), with_warm_start=False).verify(visit)
        assert found.verdict is verdict, found
    assert "answers are not copied with a run" in found.detail
    assert not answer.exists()


def stored(_: Work, __: Store) -> Iterator[Output]:
    yield Output("turns", example("turns"))


def played(work: Work, store: Store) -> Iterator[Output]:
    assert Path(complete_folder(store, work.inputs["checkpoint"]), "model.safetensors").exists()
    yield Output("turns", example("turns"))


def verified(store: Store, learner: Adapted, monkeypatch: pytest.MonkeyPatch) -> dict[str, CheckResult]:
    """Verify a rollout whose checkpoint was dropped and is derived by this learner. Returns check -> result."""
    placement.forget_learner()
    monkeypatch.setattr(placement, "load", lambda *_: lambda *_: learner)
    work = Work(Stage(name="rollout", version=1), ("turns",), played, inputs={"checkpoint": key_of(1)})
    replace(work, do=stored).carry_out(store)
    with Scratch(store) as scratch:
        visit = Visit(0, work.name, "rollout", work.keys, work)
        findings = Verifier(store, scratch, preset("smoke"), with_warm_start=False).verify(visit)
    return {finding.check: finding for finding in findings}


def test_a_derived_checkpoint_of_adapters_is_used_with_the_weights_of_its_base(
    adapted_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = verified(adapted_store, Adapted(), monkeypatch)["turns"]
    assert found.verdict is Verdict.SAME, found


class Drifting(Adapted):
    """Learner whose result differs from the original, as on another machine or with another version of torch."""

    def save(self, folder: str, checkpoint_key: str) -> None:
        super().save(folder, checkpoint_key)
        Path(folder, "adapter_model.safetensors").write_text("drifted")


class Jittery(Drifting):
    """The same, and not deterministic, as on a GPU."""

    is_deterministic = False


@pytest.mark.parametrize(
    ("learner", "reason"), [(Drifting, "gave another result"), (Jittery, "cannot be proved to be the original")]
)
def test_what_rests_on_a_checkpoint_that_cannot_be_derived_here_is_not_shown(
    adapted_store: Store, learner: type[Adapted], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = verified(adapted_store, learner(), monkeypatch)
    for check in ("turns", "texts"):
        assert found[check].verdict is Verdict.NOT_SHOWN, found[check]
        assert reason in found[check].detail
        assert "Nothing was written" not in found[check].detail
        assert "--output" not in found[check].detail
