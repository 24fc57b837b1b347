import time
from pathlib import Path

import pytest
import torch

from starpo.ragen.agents.evaluation.panel import make_panel
from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.agents.policy.tokenizer import extra_vocabulary, make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.prompting.forms import parts, read_response
from starpo.ragen.agents.prompting.parser import parse
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.device import Device
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.update import OptimiserConfig
from starpo.ragen.core.errors import CallLimitError, ConfigError, LearnerError
from starpo.ragen.core.lookup import resolve
from starpo.ragen.core.registry import SCENES
from starpo.ragen.envs import make
from starpo.ragen.envs.bandit.environment import NAME_PAIRS, BanditSettings
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.envs.statements import read_statements, score
from starpo.ragen.learning import demonstrations, imitation
from starpo.ragen.learning.examples import Batch, examples_of
from starpo.ragen.learning.learners import supervised
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.models.optimisers import ModelOptimiser
from starpo.ragen.learning.learners.models.scoring import ResponseScores
from starpo.ragen.learning.learners.models.trained_model import TorchModel

SOKOBAN = SokobanSettings(observation="compact", generator="distance", min_solution=6, max_solution=10)
AGENT = AgentConfig(prompt="state", context="window", window_turns=1, should_show_reward=False)
TOKENIZER = make_tokenizer()
SMALL = TinyPolicy(
    hidden_size=32,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    intermediate_size=32,
    warm_start_steps=12,
    warm_start_batch_size=8,
    demonstration_turns=64,
)


def demonstrate(environment=SOKOBAN, agent=AGENT, config=SMALL, excluded=frozenset(), turns=40, longest=64):
    return demonstrations.demonstrate_turns(config, environment, agent, longest, excluded, TOKENIZER, turns)


@pytest.mark.timeout(30)
def test_hanging_demonstrator_ended_by_name(monkeypatch) -> None:
    monkeypatch.setenv("STARPO_PLUGIN_S", "0.3")
    monkeypatch.setattr(demonstrations, "resolve", lambda _: lambda *_: time.sleep(1e6))
    with pytest.raises(CallLimitError, match=r"the demonstrator of 'sokoban' took longer than 0.3 s.*STARPO_PLUGIN_S"):
        demonstrate()


@pytest.mark.parametrize(
    "settings", [SOKOBAN, FrozenLakeSettings(observation="compact", slip=0.0)], ids=["sokoban", "lake"]
)
def test_formed_player_same_decisions_true_places(settings) -> None:
    free = AGENT.model_copy(update={"max_actions": 100})  # so that every stated action is executed
    agent = free.model_copy(update={"form": "grounding_worldmodeling"})
    tokenizer = make_tokenizer(extra_vocabulary(SMALL, settings, agent.form))
    played = demonstrations.demonstrate_turns(SMALL, settings, agent, 400, frozenset(), tokenizer, 60)
    plain, grammar, scene = (
        demonstrate(settings, free, turns=60),
        make(settings).grammar,
        resolve(SCENES[settings.type]),
    )
    read = [read_response(tokenizer.decode(ids[:-1]), grammar=grammar, agent=agent) for ids in played.responses]
    assert all(response.format_ok for response in read)
    thoughts = [parse(TOKENIZER.decode(ids[:-1]), grammar=grammar, agent=free).think for ids in plain.responses]
    assert [parts(response.think)["reasoning"] for response in read] == thoughts

    shown = [TOKENIZER.decode(ids).split("user\n")[1].split("<|im_end|>")[0] for ids in plain.prompts]
    for response, observation in zip(read, shown, strict=True):
        stated = {tag: read_statements(text) for tag, text in parts(response.think).items()}
        assert score(stated["observation"], scene(observation, (), {}), {}) == 1.0
        if settings.type == "sokoban":
            assert score(stated["prediction"], scene(observation, response.actions, {}), {}) == 1.0
    if settings.type == "frozen_lake":
        arrived = "the goal is in the same cell as the player"
        assert sum(arrived in parts(response.think)["prediction"] for response in read) == sum(played.successes) > 0
    assert max(len(ids) for ids in played.responses) < 200  # one token per word


def test_demonstrated_prompts_equal_rollout_prompts() -> None:
    played = demonstrate(turns=1)
    contexts = ContextBuilder(TOKENIZER, AGENT, 64)
    world = make(SOKOBAN)
    seed = demonstrations.fresh_env_seed(SOKOBAN, SMALL.seed, "warm start", 0, excluded=frozenset())
    observation, _ = world.reset(seed=seed)
    prompt = contexts.start(world).observe(observation, actions_left=10, reward=None, had_invalid_action=False)
    assert played.prompts[0] == prompt.prompt_ids


def test_prefilled_tag_belongs_to_prompt() -> None:
    agent = AgentConfig(prompt="state", context="window", should_show_reward=False, should_prefill_think=True)
    played = demonstrate(agent=agent, turns=3)
    tag = TOKENIZER.convert_tokens_to_ids("<think>")
    assert all(prompt[-1] == tag for prompt in played.prompts)
    assert all(tag not in response for response in played.responses)


def test_panel_states_are_never_demonstrated(monkeypatch: pytest.MonkeyPatch) -> None:
    # the first state that would be demonstrated is on the panel, so another one must take its place
    world = make(SOKOBAN)
    world.reset(seed=demonstrations.fresh_env_seed(SOKOBAN, SMALL.seed, "warm start", 0, excluded=frozenset()))
    excluded = frozenset({world.state_digest(), *make_panel(SOKOBAN, 16, 5).state_digests})
    begun = []
    reset = type(world).reset

    def watched_reset(self, **seeds):
        result = reset(self, **seeds)
        begun.append(self.state_digest())
        return result

    before = demonstrate(turns=1).prompts[0]
    monkeypatch.setattr(demonstrations, "make", lambda settings: world)
    monkeypatch.setattr(type(world), "reset", watched_reset)
    monkeypatch.setattr(demonstrations, "fresh_env_seed", unwatched(demonstrations.fresh_env_seed, begun))
    after = demonstrate(excluded=excluded, turns=60)
    assert begun
    assert not excluded & set(begun)
    assert after.prompts[0] != before


def unwatched(function, log: list[str]):
    """Wrap `function` so that it leaves no trace in `log`: it draws candidates, which are not demonstrated."""

    def call(*arguments, **named):
        length = len(log)
        result = function(*arguments, **named)
        del log[length:]
        return result

    return call


def test_bandit_lessons_cover_all_names() -> None:
    spoken = {TOKENIZER.decode(prompt) for prompt in demonstrate(BanditSettings(names="train"), turns=300).prompts}
    for names in NAME_PAIRS.values():
        assert all(any(f"{safe} {risky}" in text for text in spoken) for safe, risky in names)


def test_long_response_error_states_needed_length() -> None:
    with pytest.raises(ConfigError, match=r"raise that to at least \d+"):
        demonstrate(longest=9)


def test_demonstration_cut_at_turn_actions() -> None:
    agent = AgentConfig(
        prompt="state", context="window", should_show_reward=False, max_actions_per_turn=2, max_actions=100, max_turns=9
    )
    separator = TOKENIZER.convert_tokens_to_ids("Ġ||")
    assert max(ids.count(separator) for ids in demonstrate(agent=agent, turns=60).responses) == 1


@pytest.mark.ci
def test_imitation_learns_without_global_state(tmp_path: Path) -> None:
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    progress = []
    config = SMALL.model_copy(update={"warm_start_steps": 60, "demonstration_turns": 480})
    headline = imitation.imitate(
        config,
        SOKOBAN,
        AGENT,
        64,
        frozenset(),
        tmp_path,
        on_progress=lambda done, total: progress.append((done, total)),
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    assert progress == [(step, 60) for step in range(1, 61)]
    # log(438) = 6.1 nats per token at the start
    assert headline["loss"] < 3.0
    assert headline["num_turns"] >= 480
    model, tokenizer = load_policy(tmp_path)
    assert headline["vocabulary_size"] == len(tokenizer)
    assert headline["num_parameters"] == model.num_parameters()


def test_infinite_gradient_error_saves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overflowing(*arguments):
        model = make_model(*arguments)
        model.get_output_embeddings().weight.data.fill_(1e38)
        return model

    make_model = imitation.make_model
    monkeypatch.setattr(imitation, "make_model", overflowing)
    with pytest.raises(LearnerError, match=r"the gradient of step 1 of 12 has norm nan.*lower"):
        imitation.imitate(SMALL, SOKOBAN, AGENT, 64, frozenset(), tmp_path / "policy")
    assert not (tmp_path / "policy").exists()


@pytest.mark.ci
def test_warm_start_bytes_independent_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "again"):
        imitation.imitate(SMALL, SOKOBAN, AGENT, 64, frozenset(), tmp_path / name)
    monkeypatch.setattr(imitation, "MicroBatchRunner", lambda device, _, dtype: MicroBatchRunner(device, 1, dtype))
    imitation.imitate(SMALL, SOKOBAN, AGENT, 64, frozenset(), tmp_path / "one")
    weights = {name: (tmp_path / name / "model.safetensors").read_bytes() for name in ("first", "again", "one")}
    assert weights["first"] == weights["again"] == weights["one"]


def test_zero_steps_keep_seeded_weights(tmp_path: Path) -> None:
    config = SMALL.model_copy(update={"warm_start_steps": 0})
    headline = imitation.imitate(config, SOKOBAN, AGENT, 64, frozenset(), tmp_path)
    made = imitation.make_model(config, TOKENIZER).state_dict()
    assert all(torch.equal(made[name], weight) for name, weight in load_policy(tmp_path)[0].state_dict().items())
    assert headline["num_turns"] == 0
    assert "loss" not in headline


@pytest.mark.parametrize("split", [supervised.in_rectangles, supervised.in_prefix_rows(128, 96, 2)])
@pytest.mark.parametrize("context", ["window", "full"])
def test_batch_gradient_of_mean_token_loss(split, context) -> None:
    model = imitation.make_model(SMALL, TOKENIZER)
    played = demonstrate(agent=AGENT.model_copy(update={"context": context}), turns=9)
    batch = Batch(examples_of(played.prompts, played.responses))
    assert (len(batch.segments) < len(played.prompts)) == (context == "full")
    policy = TorchModel(ResponseScores(model), ModelOptimiser(model, OptimiserConfig()))
    runner = MicroBatchRunner(Device(), 2, "float32")
    loss, share_right = supervised.accumulate_gradient(policy, batch, split(batch), runner)
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    # one turn at a time, no padding: transformers' own loss, with -100 on every prompt token
    model.zero_grad()
    num_tokens = sum(map(len, played.responses))
    total, right = 0.0, 0
    for prompt, response in zip(played.prompts, played.responses, strict=True):
        labels = torch.tensor([[-100] * len(prompt) + response])
        output = model(input_ids=torch.tensor([prompt + response]), labels=labels)
        (output.loss * len(response) / num_tokens).backward()
        total += output.loss.item() * len(response)
        right += int((output.logits[0, len(prompt) - 1 : -1].argmax(-1) == torch.tensor(response)).sum())
    assert loss == pytest.approx(total / num_tokens, rel=1e-5)
    assert share_right == right / num_tokens
    for gradient, parameter in zip(gradients, model.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-6)


def test_examples_are_turns_or_whole_contexts() -> None:
    apart = examples_of([[1, 2], [1, 3]], [[7, 8], [9]])
    assert [(e.token_ids.tolist(), e.response_mask.tolist()) for e in apart] == [
        ([1, 2, 7, 8], [False, False, True, True]),
        ([1, 3, 9], [False, False, True]),
    ]
    joined = examples_of([[1, 2], [1, 2, 7, 8, 3], [1, 2]], [[7, 8], [9], [7, 8]])
    assert [(e.token_ids.tolist(), e.response_mask.tolist()) for e in joined] == [
        ([1, 2, 7, 8, 3, 9], [False, False, True, True, False, True]),
        ([1, 2, 7, 8], [False, False, True, True]),
    ]


@pytest.mark.parametrize(("num_rows", "batch_size"), [(10, 4), (8, 4), (3, 5), (1, 1)])
def test_rows_repeat_only_after_full_pass(num_rows: int, batch_size: int) -> None:
    batches = supervised._batches(num_rows, batch_size, seed=3)
    size = min(num_rows, batch_size)
    for _ in range(3):
        rows = [row for _ in range(num_rows // size) for row in next(batches)]
        assert len(rows) == len(set(rows)) == num_rows // size * size
        assert set(rows) <= set(range(num_rows))


def test_lost_position_demonstrated_once_per_episode() -> None:
    lost = TOKENIZER.convert_tokens_to_ids("Ġnone")
    played = demonstrate(config=SMALL.model_copy(update={"demonstration_skill": 0.0}), turns=400)
    # otherwise two fifths of the 400 turns would be lost positions, more than there are episodes
    num_lost = sum(lost in ids for ids in played.responses)
    assert 0 < num_lost <= played.successes.count(False)
