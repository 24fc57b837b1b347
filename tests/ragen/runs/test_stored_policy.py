"""A run's tokenizer is read from the first of its checkpoints that is readable."""

from pathlib import Path

import pytest

from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.runs.stored_policy import checkpoints_of, find_tokenizer
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.manifest import Stage
from tests.examples import example, put_folder

STAGE = Stage(name="warm_start", version=1)


def put(store: Store, folder: Path, number: int) -> str:
    settings = {"number": number}
    key = stage_key(STAGE, settings, {}, 0)
    put_folder(store, "checkpoint", str(folder), Facts(key=key, stage=STAGE, settings=settings, inputs={}, seed=0))
    return key


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_tokenizer().save_pretrained(tmp_path / "policy")
    (tmp_path / "policy" / "model.safetensors").write_bytes(b"weights")
    return tmp_path / "policy"


@pytest.mark.ci
def test_first_readable_checkpoint_is_taken(store: Store, folder: Path):
    dropped, kept = put(store, folder, 0), put(store, folder, 1)
    store.drop("checkpoint", dropped)
    tokenizer = find_tokenizer(store, ["0" * 32, dropped, kept])
    assert tokenizer.chat_template == make_tokenizer().chat_template
    assert tokenizer.decode(make_tokenizer().encode("P 1 2")) == "P 1 2"
    assert find_tokenizer(store, ["0" * 32, dropped]) is None


def test_unknown_tokenizer_is_skipped(store: Store, folder: Path):
    (folder / "tokenizer.json").write_text('{"model": "from the future"}')
    assert find_tokenizer(store, [put(store, folder, 0)]) is None
    (folder / "tokenizer.json").unlink()
    assert find_tokenizer(store, [put(store, folder, 1)]) is None


def test_own_checkpoints_precede_played_ones(store: Store):
    facts = {"stage": Stage(name="rollout", version=1), "settings": {}, "inputs": {"checkpoint": "c" * 32}, "seed": 0}
    key = stage_key(facts["stage"], {}, facts["inputs"], 0)
    store.put_table("turns", example("turns"), Facts(key=key, **facts))
    iterations = {
        0: {"rollout": {"turns": key}, "update": {"checkpoint": "b" * 32, "samples": "b" * 32}},
        1: {"rollout": {"turns": "0" * 32}},
    }
    assert list(checkpoints_of(store, iterations)) == ["b" * 32, "c" * 32]
