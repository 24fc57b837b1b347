"""Re-tokenisation drift with the embedded policy's tokenizer: shares by hand, missing tokens, missing tokenizers."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.evidence.audit.finding import Finding
from starpo.ragen.evidence.audit.retokenisation import retokenisation_drift
from starpo.ragen.evidence.audit.stored import open_database
from starpo.ragen.store import Facts, Store
from starpo.schemas.datasets import UNKNOWN_FINISH
from starpo.schemas.manifest import Stage
from tests.examples import put_folder

from .conftest import Ask, played_turns
from .test_audits import changed

TOKENIZER = make_tokenizer()
END = TOKENIZER.eos_token_id


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


SAID = [*ids("<think>box above</think><answer>Up</answer>"), END]
SPELLED = [*(token for sign in "<think>" for token in ids(sign)), *SAID[1:]]
"""The same text with its first tag tokenised character by character."""


def turns_of(responses: Sequence[Sequence[int]]) -> pa.Table:
    table = played_turns().slice(0, len(responses))
    return changed(
        table,
        lambda n, _: {
            "prompt_ids": ids("the player is here\n"),
            "response_ids": list(responses[n]),
            "truncated": n == len(responses) - 1,
            "behaviour_logprobs": [-0.5] * len(responses[n]),
        },
    )


def audited(store: Store, folder: Path, turns: pa.Table, *, has_tokenizer: bool = True) -> Finding:
    """Store a run of one iteration, and audit it."""
    store.runs.create("mine", flow="starpo", preset=None, config={})
    facts: dict[str, Any] = {"settings": {}, "inputs": {}, "seed": 0}
    if has_tokenizer:
        TOKENIZER.save_pretrained(folder)
        stage = Stage(name="warm_start", version=1)
        put_folder(store, "checkpoint", folder, Facts(key="c" * 32, stage=stage, **facts))
        store.runs.record_stage("mine", 0, "warm_start", {"checkpoint": "c" * 32})
    store.put_table("turns", turns, Facts(key="a" * 32, stage=Stage(name="rollout", version=1), **facts))
    store.runs.record_stage("mine", 0, "rollout", {"turns": "a" * 32})
    with open_database(store, ["mine"]) as database:
        return retokenisation_drift(database)


@pytest.fixture
def audit(tmp_path: Path) -> Callable[..., Finding]:
    return lambda *args, **kwargs: audited(Store(str(tmp_path / "store")), tmp_path / "policy", *args, **kwargs)


def test_tokenizers_own_text_agrees(audit: Callable[..., Finding]) -> None:
    finding = audit(turns_of([SAID, SAID]))
    assert (finding.severity, finding.summary) == ("note", "Share of turns that differ 0.")
    (row,) = finding.table.to_pylist()
    shares = [row[name] for name in ("differ", "responses", "prompts", "seams", "response_tokens")]
    assert (row["turns"], shares, row["example"]) == (2, [0.0] * 5, None)


def test_another_spelling_is_counted_and_shown(audit: Callable[..., Finding]) -> None:
    assert TOKENIZER.decode(SPELLED) == TOKENIZER.decode(SAID)
    finding = audit(turns_of([SAID, SPELLED]))
    assert finding.severity == "warning"
    (row,) = finding.table.to_pylist()
    assert (row["differ"], row["responses"], row["prompts"], row["seams"]) == (0.5, 0.5, 0.0, 0.0)
    assert row["response_tokens"] == round(len("<think>") / (len(SAID) + len(SPELLED)), 4)
    second = turns_of([SAID, SPELLED]).to_pylist()[1]
    assert row["example"] == f"{second['trajectory_id']}, turn {second['turn']}"
    assert row["stored"].split() == [str(token) for token in SPELLED[:8]]
    assert row["again"].split()[0] == str(SAID[0])


def test_absent_tokens_are_no_agreement(audit: Callable[..., Finding]) -> None:
    bare = {"finish_reason": UNKNOWN_FINISH, "prompt_ids": [], "response_ids": [], "behaviour_logprobs": []}
    finding = audit(changed(turns_of([SAID, SAID]), lambda *_: bare))
    assert finding.severity == "note"
    assert finding.summary == "2 of 2 responses were imported without tokens and cannot be checked."
    (row,) = finding.table.to_pylist()
    assert (row["turns"], row["without_tokens"], row["differ"], row["response_tokens"]) == (2, 2, None, None)


def test_missing_tokenizer_is_all_reported(audit: Callable[..., Finding]) -> None:
    finding = audit(turns_of([SAID, SPELLED]), has_tokenizer=False)
    assert finding.severity == "note"
    assert finding.summary == (
        "2 of 2 turns cannot be decoded: no checkpoint with their run's tokenizer is in the store."
    )
    assert finding.table["differ"].to_pylist() == [None]


def test_a_seam_is_neither_parts_fault(tables: Ask) -> None:
    """Each part is reproduced by itself; in the joint text, the last token of the prompt changes."""

    def retokenise(_: str, texts: Sequence[Sequence[int]]) -> list[list[int]]:
        return [[99 if pair == [2, 3] else pair[0] for pair in ([*text][i : i + 2] for i in range(len(text)))]
                for text in texts]  # fmt: skip

    turns = changed(played_turns().slice(0, 1), lambda *_: {"prompt_ids": [1, 2], "response_ids": [3, 4]})
    (row,) = retokenisation_drift(tables(turns=turns, retokenise=retokenise)).table.to_pylist()
    assert (row["differ"], row["responses"], row["prompts"], row["seams"]) == (1.0, 0.0, 0.0, 1.0)
    assert (row["stored"], row["again"]) == ("2 3 4", "99 3 4")
