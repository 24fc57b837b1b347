"""Demonstrator: its decisions are as good as its skill, and a parser reads them as they are meant."""

import pytest

from starpo.flows.presets import preset
from starpo.ragen.agents.policy.tokenizer import extra_vocabulary, make_tokenizer
from starpo.ragen.agents.prompting.parser import format_response, parse
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.webshop.demonstrations import demonstrate
from starpo.ragen.envs.webshop.environment import WebShop


@pytest.fixture(scope="module")
def config():
    return preset("webshop", {"environment.num_products": 600, "environment.split": "all"})


def turns(config, skill, seeds):
    environment = WebShop(config.environment)
    for seed in seeds:
        environment.reset(seed=seed)
        rng, is_over = python_random("demonstrations", seed), False
        for _ in range(config.agent.max_turns):
            decision = demonstrate(environment, skill, rng)
            yield environment, decision
            for action in decision.actions:
                is_over = environment.step(action)[2]
            if is_over:
                break
        yield environment, None


def test_success_rate_depends_on_skill(config):
    def success(skill):
        ends = [environment.is_success for environment, decision in turns(config, skill, range(100)) if not decision]
        return sum(ends) / len(ends)

    assert success(1.0) > 0.9
    assert success(config.policy.demonstration_skill) < 0.3


def test_demonstrations_are_read_and_fit(config):
    tokenizer = make_tokenizer(extra_vocabulary(config.policy, config.environment))
    lengths, prompts = [], []
    for environment, decision in turns(config, 0.3, range(60)):
        if decision is None:
            continue
        text = format_response(decision.think, decision.actions, config.agent, environment.grammar)
        parsed = parse(text, grammar=environment.grammar, agent=config.agent)
        assert (parsed.actions, parsed.format_ok) == (decision.actions, True)
        lengths.append(len(tokenizer.encode(text)))
        prompts.append(len(tokenizer.encode(environment.render())))
    assert max(lengths) < config.rollout.max_response_tokens
    assert max(prompts) < 128
