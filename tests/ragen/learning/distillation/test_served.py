"""A teacher on a server: the log-probs of the same teacher loaded here, and what is refused."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from starpo.ragen.agents.policy.save import save_policy
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.config.teachers import ServerTeacher
from starpo.ragen.core.errors import ConfigError, EngineError, LearnerError, StarPOError
from starpo.ragen.learning.distillation.contexts import TeacherContexts
from starpo.ragen.learning.distillation.scoring import LoadedTeacher
from starpo.ragen.learning.distillation.served import check_server, score_on_server
from tests.openai_server import Server
from tests.ragen.learning.distillation.test_scoring import SMALL, TURNS
from tests.teacher_server import serving

TOKENIZER = make_tokenizer()
CONTEXTS = TeacherContexts(TURNS, None, {("g/0", 1): [40, 41]}, [8])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("teacher")
    save_policy(make_model(SMALL, TOKENIZER), TOKENIZER, path)
    return str(path)


@pytest.fixture
def server(folder: str) -> Iterator[Server]:
    with serving(folder) as server:
        yield server


def settings(server: Server, **options: Any) -> ServerTeacher:
    return ServerTeacher(base_url=server.url, model="a-model", max_retries=1, **options)


def test_scores_are_the_loaded_teachers(folder: str, server: Server) -> None:
    here = LoadedTeacher(folder, "start", "float32").score(CONTEXTS, 1.0, 64)
    there = score_on_server(CONTEXTS, TOKENIZER, settings(server))
    assert there.logprobs_N.tolist() == pytest.approx(here.logprobs_N.tolist(), abs=1e-5)
    assert there.is_mode_N.tolist() == here.is_mode_N.tolist()
    prompts = sorted(body["prompt"] for *_, body, _ in server.requests)
    assert prompts == sorted(one.token_ids.tolist() for one in CONTEXTS.segments)


def test_top_tokens_are_the_loaded_teachers(folder: str, server: Server) -> None:
    here = LoadedTeacher(folder, "start", "float32").score(CONTEXTS, 1.0, 64, top_k=3)
    there = score_on_server(CONTEXTS, TOKENIZER, settings(server, top_k=3))
    assert there.top_ids_NK.tolist() == here.top_ids_NK.tolist()
    torch.testing.assert_close(there.top_logprobs_NK, here.top_logprobs_NK, atol=1e-5, rtol=0)
    torch.testing.assert_close(there.logprobs_N, here.logprobs_N, atol=1e-5, rtol=0)


def test_fewer_top_tokens_are_refused(server: Server) -> None:
    score = server.prompt_logprobs
    server.prompt_logprobs = lambda ids, top_k: score(ids, 2)
    with pytest.raises(LearnerError, match=r"of its teacher\.top_k = 5 most probable tokens: lower that, or let the"):
        score_on_server(CONTEXTS, TOKENIZER, settings(server, top_k=5))


def test_failed_requests_are_repeated(server: Server) -> None:
    server.script = ["500"]
    assert score_on_server(CONTEXTS, TOKENIZER, settings(server)).logprobs_N.lt(0).all()
    assert len(server.requests) == len(CONTEXTS.segments) + 1


def test_few_requests_at_a_time(server: Server) -> None:
    server.delay_s = 0.05
    progress: list[tuple[int, int]] = []
    score_on_server(CONTEXTS, TOKENIZER, settings(server, max_concurrent=2), lambda *part: progress.append(part))
    assert server.most_in_flight == 2
    number = len(CONTEXTS.segments)
    assert progress == [(done, number) for done in range(1, number + 1)]


def without_text(server: Server) -> None:
    server.prompt_logprobs = None


def changing(change: Callable[[str, dict[str, Any]], dict[str, Any]]) -> Callable[[Server], None]:
    """Change what the server says of each token, given its text."""

    def prepare(server: Server) -> None:
        score = server.prompt_logprobs
        server.prompt_logprobs = lambda ids, top_k: [
            one and {number: entry | change(entry["decoded_token"], entry) for number, entry in one.items()}
            for one in score(ids, top_k)
        ]

    return prepare


@pytest.mark.parametrize(
    ("prepare", "kind", "message"),
    [
        (without_text, EngineError, "returns no prompt_logprobs, so it cannot score the policy's tokens"),
        (changing(lambda *_: {"decoded_token": "other"}), ConfigError, "has another vocabulary than the policy: token"),
        (changing(lambda *_: {"logprob": float("nan")}), LearnerError, "a log-probability of nan"),
        (changing(lambda *_: {"logprob": 0.5}), LearnerError, "a log-probability of 0.5"),
        (changing(lambda *_: {"rank": None}), EngineError, "does not follow OpenAI's protocol"),
        (lambda server: server.script.extend(["401"]), EngineError, "set the environment variable OPENAI_API_KEY"),
        (lambda server: server.script.extend(["html"]), EngineError, "does not follow OpenAI's protocol"),
        (lambda server: server.script.extend(["400"]), EngineError, "failed with status 400"),
    ],
)
def test_server_is_checked_with_one_request(
    server: Server, prepare: Callable[[Server], None], kind: type[StarPOError], message: str
) -> None:
    check_server(settings(server), TOKENIZER)
    assert len(server.requests) == 1
    prepare(server)
    with pytest.raises(kind, match=message):
        check_server(settings(server), TOKENIZER)


def test_parts_of_characters_are_not_compared(folder: str) -> None:
    """What a server writes for a token that is part of a character depends on the tokens before it."""
    with serving(folder) as server:
        changing(lambda text, _: {"decoded_token": "x" if "\ufffd" in text else text})(server)
        check_server(settings(server), TOKENIZER)


def test_slow_teacher_is_refused(server: Server) -> None:
    server.delay_s = 0.2
    with pytest.raises(LearnerError, match=r"has not scored this rollout in teacher\.limit_s = 0\.05: raise the limit"):
        score_on_server(CONTEXTS, TOKENIZER, settings(server, limit_s=0.05))


def test_server_that_is_gone_is_named(server: Server) -> None:
    absent = settings(server).model_copy(update={"base_url": "http://127.0.0.1:9/v1", "max_retries": 0})
    with pytest.raises(EngineError, match=r"127.0.0.1:9/v1 cannot be reached .* check teacher.base_url"):
        check_server(absent, TOKENIZER)
