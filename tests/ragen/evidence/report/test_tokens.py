from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.evidence.reading import Place, Reader, places
from starpo.ragen.evidence.report import embedding
from starpo.ragen.evidence.report.rollouts import read_rollout
from starpo.ragen.evidence.report.tokens import TokenLengths
from starpo.ragen.evidence.report.trajectory import TrajectorySource
from starpo.ragen.store import Store

TOKENIZER = make_tokenizer()
LENGTHS = TokenLengths(Tokenizer.from_str(TOKENIZER.backend_tokenizer.to_str()))


def encode(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False, split_special_tokens=True)


def test_text_excludes_end_token() -> None:
    assert LENGTHS.measure([*encode("Up"), TOKENIZER.eos_token_id], "Up") == [2, 0]


def test_tokens_that_share_a_character() -> None:
    # the euro sign is three bytes, so three tokens; the emoji is four, and two UTF-16 units
    assert LENGTHS.measure(encode("€"), "€") == [0, 0, 1]
    assert LENGTHS.measure(encode("\U0001f600"), "\U0001f600") == [0, 0, 0, 2]


def test_truncated_text_keeps_shown_tokens(stored_run: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    text, shown = "\U0001f600" * 7, "\U0001f600" * 5
    ids = encode(text)
    smiles = {"response": text, "response_ids": ids, "behaviour_logprobs": [-1.0] * len(ids)}

    class Smiling(Reader):
        def table(self, place: Place, columns: Sequence[str] | None = None) -> pa.Table | None:
            table = super().table(place, columns)
            if table is None or place.kind != "turns":
                return table
            return pa.Table.from_pylist([row | smiles for row in table.to_pylist()], schema=table.schema)

    monkeypatch.setattr(embedding, "MAX_TEXT_CHARACTERS", len(shown))
    at_first = [place for place in places(stored_run.runs.iterations("hostile")) if place.iteration == 0]
    batch = read_rollout(Smiling(stored_run), at_first, TrajectorySource(None, LENGTHS, None))
    assert batch is not None
    turn = next(iter(batch.groups))["members"][0]["turns"][0]
    assert turn["response"] == shown
    assert sum(turn["lengths"]) == len(shown.encode("utf-16-le")) // 2


@given(st.text(max_size=30))
def test_any_text_spelt_by_tokens(text: str) -> None:
    ids = encode(text)
    recorded = TOKENIZER.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    lengths = LENGTHS.measure([*ids, TOKENIZER.eos_token_id], recorded)
    assert lengths is not None
    assert sum(lengths) == len(recorded.encode("utf-16-le")) // 2
    assert len(lengths) == len(ids) + 1


def test_tokens_of_other_text_no_lengths() -> None:
    assert LENGTHS.measure(encode("Up || Left"), "Down") is None
    assert LENGTHS.measure([], "Down") is None
    assert LENGTHS.measure([], "") == []


def test_decoder_dropping_first_blank_is_handled() -> None:
    """As in SentencePiece: the first word has no blank before it, the same word after another has one."""
    tokenizer = Tokenizer(models.WordLevel({"▁Hello": 0, "▁world": 1, "!": 2}, unk_token="!"))
    tokenizer.decoder = decoders.Metaspace()
    assert TokenLengths(tokenizer).measure([0, 1, 2], "Hello world!") == [5, 6, 1]
