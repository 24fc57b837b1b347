"""One stage done again and compared."""

from collections.abc import Iterator
from pathlib import Path

from starpo.flows.presets import preset
from starpo.ragen.recompute.verify.chosen import Visit
from starpo.ragen.recompute.verify.scratch import Scratch
from starpo.ragen.recompute.verify.verdict import Verdict
from starpo.ragen.recompute.verify.verifier import Verifier
from starpo.ragen.store import Store
from starpo.ragen.work import Made, Work
from starpo.schemas.examples import example
from starpo.schemas.manifest import Stage

QUESTION = {"model": "m", "prompt": "Is it?"}


def judged(_: Work, store: Store) -> Iterator[Made]:
    if store.answers.get(QUESTION) is None:
        store.answers.put(QUESTION, "YES")
    yield Made("rewards", example("rewards"), is_deterministic=False)


def test_what_rests_on_answers_that_are_not_here_is_not_shown_and_nobody_is_asked(tmp_path: Path) -> None:
    work = Work(Stage(name="reward", version=1), ("rewards",), judged)
    stores = [Store(str(tmp_path / name)) for name in ("here", "elsewhere")]
    for store in stores:
        work.carry_out(store)
    (answer,) = Path(stores[1].url).glob("answers/??/*.json")
    answer.unlink()  # as where a run was copied to
    visit = Visit(0, work.name, "reward", work.keys, work)
    for store, verdict in zip(stores, (Verdict.SAME, Verdict.NOT_SHOWN), strict=True):
        with Scratch(store) as scratch:
            (found,) = Verifier(store, scratch, preset("smoke"), with_warm_start=False).verify(visit)
        assert found.verdict is verdict, found
    assert "answers are not copied with a run" in found.detail
    assert not answer.exists()
