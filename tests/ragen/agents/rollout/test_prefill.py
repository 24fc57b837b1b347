"""The torch engine reads every token once, and equal prompts and equal members in one row."""

import pytest

from starpo.ragen.agents.rollout.engine import Request
from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.seeding import token_uniforms
from tests.ragen.agents.rollout.policies import SAMPLING, STOPS, CountingDecoder, save_policy


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """Folder of a policy."""
    folder = tmp_path_factory.mktemp("policy")
    save_policy(folder)
    return str(folder)


def counting_engine(policy):
    engine = TorchEngine(device="cpu")
    engine.load(policy, "a")
    engine._decoder = CountingDecoder(engine._decoder)
    return engine, engine._decoder


def test_groups_first_prompt_prefilled_once(policy):
    engine, counter = counting_engine(policy)
    requests = [Request(f"s{number}", [30, 31, 32], token_uniforms(number, 0, 9), 0) for number in range(8)]
    responses = engine.session(SAMPLING, STOPS).generate(requests)
    assert counter.prefilled == [3]
    assert len({tuple(response.token_ids) for response in responses}) > 1  # and members still diverge


def test_only_new_tokens_are_prefilled(policy):
    engine, counter = counting_engine(policy)
    session = engine.session(SAMPLING, STOPS)
    (first,) = session.generate([Request("s", [30, 31, 32], token_uniforms(0, 0, 9), 0)])
    session.generate([Request("s", [30, 31, 32, *first.token_ids, 33, 34], token_uniforms(0, 1, 9), 0)])
    assert counter.prefilled == [3, 3]  # the last sampled token, which was never read, and the two new ones
    session.generate([Request("s", [30, 31, 35], token_uniforms(0, 2, 9), 0)])
    assert counter.prefilled[-1] == 3  # does not extend the kept context: the whole prompt


def test_nothing_kept_if_prompts_restart(policy):
    engine, counter = counting_engine(policy)
    session = engine.session(SAMPLING, STOPS)
    session.generate([Request("s", [30, 31, 32], token_uniforms(0, 0, 9), 0)])
    (second,) = session.generate([Request("s", [33, 34], token_uniforms(0, 1, 9), 0)])
    prompt = [33, 34, *second.token_ids, 35]
    (third,) = session.generate([Request("s", prompt, token_uniforms(0, 2, 9), 0)])
    assert counter.prefilled == [3, 2, len(prompt)]
    (anew,) = engine.session(SAMPLING, STOPS).generate([Request("s", prompt, token_uniforms(0, 2, 9), 0)])
    assert third == anew


def test_sequences_share_row_until_they_part(policy):
    engine, counter = counting_engine(policy)
    requests = [Request(f"s{number}", [30, 31], token_uniforms(number, 0, 60), 0) for number in range(64)]
    responses = engine.session(SamplingConfig(max_response_tokens=60), STOPS).generate(requests)
    read = [response.token_ids[:-1] for response in responses]
    for step, num_rows in enumerate(counter.stepped):
        distinct = {tuple(ids[: step + 1]) for ids in read if len(ids) > step}
        assert len(distinct) <= num_rows <= len(distinct) * 8 / 7 + 1  # rows leave when one in eight is dead
    assert len(counter.stepped) == max(map(len, read))


def test_equal_draws_are_read_once(policy):
    engine, counter = counting_engine(policy)
    sampling = SAMPLING.model_copy(update={"temperature": 0.0})
    requests = [Request(f"s{number}", [30, 31], token_uniforms(number, 0, 9), 0) for number in range(16)]
    responses = engine.session(sampling, STOPS).generate(requests)
    assert set(counter.stepped) <= {1}
    assert all(response == responses[0] for response in responses)


def test_closed_session_restarts(policy):
    engine, counter = counting_engine(policy)
    session = engine.session(SAMPLING, STOPS)
    (first,) = session.generate([Request("s", [30, 31, 32], token_uniforms(0, 0, 9), 0)])
    session.close()
    prompt = [30, 31, 32, *first.token_ids, 33]
    session.generate([Request("s", prompt, token_uniforms(0, 1, 9), 0)])
    assert counter.prefilled == [3, len(prompt)]
