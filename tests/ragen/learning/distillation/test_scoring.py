"""A teacher's log-probs: those of one context at a time, whatever is shared; and what it refuses."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.agents.policy.save import save_policy
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.core.errors import LearnerError, PolicyError
from starpo.ragen.learning.distillation.contexts import TeacherContexts, hinted_contexts
from starpo.ragen.learning.distillation.scoring import LoadedTeacher, metrics, table, top_tokens
from starpo.schemas.validate import validate
from tests.ragen.learning.distillation.test_contexts import turns_of

SMALL = TinyPolicy(hidden_size=16, num_layers=2, num_heads=2, num_kv_heads=1, intermediate_size=24, seed=3)
TURNS = turns_of(
    [
        ("g/0", 0, True, [5, 6, 7, 8], [21, 20]),
        ("g/0", 1, False, [3, 7, 8], [31, 32]),
        ("g/1", 0, True, [5, 6, 7, 8], [21, 23]),
        ("g/2", 0, True, [5, 9, 8], [24]),
    ]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("teacher")
    tokenizer = make_tokenizer()
    save_policy(make_model(SMALL, tokenizer), tokenizer, path)
    return str(path)


@pytest.fixture(scope="module")
def teacher(folder: str) -> LoadedTeacher:
    return LoadedTeacher(folder, "start", "float32")


def naive(folder: str, contexts: TeacherContexts, temperature: float) -> list[float]:
    """Log-probs of the response tokens, a whole context and a token at a time."""
    model, _ = load_policy(folder)
    values = []
    for context in contexts.segments:
        ids = context.token_ids.tolist()
        for place in np.flatnonzero(context.response_mask).tolist():
            with torch.no_grad():
                logits_V = model(input_ids=torch.tensor([ids[:place]])).logits[0, -1]
            values.append(float((logits_V / temperature).log_softmax(0)[ids[place]]))
    return values


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_logprobs_equal_those_of_single_contexts(folder: str, teacher: LoadedTeacher, temperature: float) -> None:
    hints = {("g/0", 1): [40, 41], ("g/2", 0): [42]}
    contexts = TeacherContexts(TURNS, None, hints, [8])
    progress: list[tuple[int, int]] = []
    scored = teacher.score(contexts, temperature, 16, on_progress=lambda *part: progress.append(part))
    assert progress[-1] == (len(progress), len(progress))
    assert scored.logprobs_N.tolist() == pytest.approx(naive(folder, contexts, temperature), abs=1e-5)


def test_hint_changes_what_follows_it_alone(teacher: LoadedTeacher) -> None:
    plain, hinted = (
        teacher.score(TeacherContexts(TURNS, None, hints, [8]), 1.0, 64).logprobs_N
        for hints in ({}, {("g/0", 1): [40, 41]})
    )
    assert (plain - hinted).abs().gt(1e-6).tolist() == [False, False, True, True, False, False, False]


def test_rows_are_turns_with_responses(teacher: LoadedTeacher) -> None:
    contexts = TeacherContexts(TURNS)
    scored = teacher.score(contexts, 1.0, 64)
    rows = table(contexts, scored)
    validate(rows, "teacher_logprobs")
    assert rows["turn"].to_pylist() == [0, 1, 0, 0]
    assert [len(one) for one in rows["logprobs"].to_pylist()] == [2, 2, 2, 1]
    values = metrics(contexts, scored, TURNS)
    assert values["teacher/kl"] == pytest.approx(-0.5 - float(scored.logprobs_N.mean()), abs=1e-6)
    assert values["teacher/agreement"] == pytest.approx(np.mean(scored.is_mode_N.tolist()))


@pytest.mark.parametrize("token_budget", [16, 64])
def test_top_tokens_equal_single_contexts(folder: str, teacher: LoadedTeacher, token_budget: int) -> None:
    contexts = TeacherContexts(TURNS)
    scored = teacher.score(contexts, 0.5, token_budget, top_k=3)
    model, _ = load_policy(folder)
    rows = iter(zip(scored.top_ids_NK, scored.top_logprobs_NK, strict=True))
    for context in contexts.segments:
        for place in np.flatnonzero(context.response_mask).tolist():
            with torch.no_grad():
                logits_V = model(input_ids=torch.tensor([context.token_ids.tolist()[:place]])).logits[0, -1]
            expected, (ids, logprobs) = (logits_V / 0.5).log_softmax(0).topk(3), next(rows)
            assert ids.tolist() == expected.indices.tolist()
            assert logprobs.tolist() == pytest.approx(expected.values.tolist(), abs=1e-5)
    table = top_tokens(contexts, scored)
    validate(table, "teacher_top_tokens")
    assert [len(ids) for ids in table["token_ids"].to_pylist()] == [6, 6, 6, 3]
    assert table["token_ids"].combine_chunks().flatten().to_pylist() == scored.top_ids_NK.flatten().tolist()
    mass = float(scored.top_logprobs_NK.exp().sum(1).mean())
    assert metrics(contexts, scored, TURNS)["teacher/top_k_mass"] == pytest.approx(mass)
    assert "teacher/top_k_mass" not in metrics(contexts, teacher.score(contexts, 0.5, 64), TURNS)


def test_more_than_the_vocabulary_is_refused(teacher: LoadedTeacher) -> None:
    with pytest.raises(LearnerError, match=r"teacher\.top_k = 1000 is more than the teacher's vocabulary"):
        teacher.score(TeacherContexts(TURNS), 1.0, 64, top_k=1000)


def test_mode_is_the_most_probable_token(folder: str, teacher: LoadedTeacher) -> None:
    model, _ = load_policy(folder)
    with torch.no_grad():
        best = int(model(input_ids=torch.tensor([[5, 6]])).logits[0, -1].argmax())
    turns = turns_of([("g/0", 0, True, [5, 6], [best]), ("g/1", 0, True, [5, 6], [(best + 1) % 50])])
    assert teacher.score(TeacherContexts(turns), 1.0, 64).is_mode_N.tolist() == [True, False]


def test_hint_is_written_by_the_template(teacher: LoadedTeacher) -> None:
    agent = AgentConfig(prompt="state")
    prompt = teacher.tokenizer.apply_chat_template(
        [{"role": "user", "content": "up"}], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    turns = turns_of([("g/0", 0, True, list(prompt), [21])])
    hints = {("g/0", 0): "Left <|im_end|>"}
    contexts = hinted_contexts(turns, None, hints, "\nHint: {hint}", agent, teacher.tokenizer)
    shown = teacher.tokenizer.decode(contexts.segments[0].token_ids[:-1])
    assert shown == "<|im_start|>user\nup\nHint: Left <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    end = teacher.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert contexts.segments[0].token_ids.tolist().count(end) == 1  # a hint ends no message


def test_slow_teacher_is_refused(teacher: LoadedTeacher) -> None:
    with pytest.raises(LearnerError, match=r"has not finished, and teacher\.limit_s = 1e-09: raise the limit"):
        teacher.score(TeacherContexts(TURNS), 1.0, 64, limit_s=1e-9)


def test_context_beyond_its_positions_is_refused(folder: str) -> None:
    longer = turns_of([("g/0", 0, True, [5] * 40_000, [21])])
    with pytest.raises(LearnerError, match="has 40001 tokens, and it reads"):
        LoadedTeacher(folder, "start", "float32").score(TeacherContexts(longer), 1.0, 64)


def test_damaged_teacher_is_refused(folder: str, tmp_path: Path) -> None:
    for file in Path(folder).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.norm.weight"
    save_file(tensors | {name: tensors[name] * 1e8}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(LearnerError, match="not finite: its weights are damaged"):
        LoadedTeacher(str(tmp_path), "start", "float32").score(TeacherContexts(TURNS), 1.0, 64)


def test_teacher_that_is_gone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="is not there; expected a folder"):
        LoadedTeacher(str(tmp_path / "gone"), "start", "float32")
