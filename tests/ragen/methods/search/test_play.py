"""Rollout by search: which candidate is selected, what is stored of the others, and no side effects of trying."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow.compute as pc
import pytest
from pydantic import TypeAdapter

from starpo.ragen.agents.policy.load import load_tokenizer
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.engine import Request
from starpo.ragen.agents.rollout.engine_spec import EngineSpec
from starpo.ragen.agents.rollout.episode import Episode
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer
from starpo.ragen.agents.rollout.pools.worker_pool import WorkerPool
from starpo.ragen.agents.rollout.shards import make_episodes, play_shards
from starpo.ragen.agents.rollout.siblings import take_siblings
from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from starpo.ragen.agents.rollout.turn_images import take_images
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.config.search import SearchConfig
from starpo.ragen.core.errors import EngineError
from starpo.ragen.core.seeding import derive_seed, token_uniforms
from starpo.ragen.envs.bandit.environment import BanditSettings
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.methods.search.play import play_searching
from starpo.ragen.methods.search.settings import BeamConfig, BestOfConfig, LookaheadConfig
from starpo.ragen.runs.verify.actions import turn_differences
from starpo.ragen.runs.verify.texts import text_differences
from starpo.schemas.digest import content_digest
from starpo.schemas.validate import validate
from tests.ragen.agents.rollout.conftest import ScriptedEngine

STATE = AgentConfig(prompt="state", max_turns=3, max_actions_per_turn=2)
SAMPLING = SamplingConfig(max_response_tokens=60)
ALONE = (Episode("g0", 0, env_seed=7, dynamics_seed=1, sampling_seed=100),)
SHARDS = make_episodes([(f"g{number}", 1000 + number) for number in range(4)], group_size=3, shard_groups=1)


def say(actions: str) -> str:
    return f"<think>t</think><answer>{actions}</answer>"


@pytest.fixture
def searched(tokenizer, corridor):
    """`searched(search, said)`: rows, siblings and images, checked against their contracts, and the session.

    `said` maps the sequence id of a candidate to its actions in each turn; turns are counted per sequence id.
    """

    def run(
        search, actions, *, environment=None, agent=STATE, episodes=ALONE, max_context_tokens=4096, deadline_s=None
    ):
        reader = make_tokenizer(patch_size=32) if agent.shows_images else tokenizer
        contexts = ContextBuilder(reader, agent, SAMPLING.max_response_tokens)
        script = actions if callable(actions) else lambda name, turn: say(actions[name][turn])
        session = ScriptedEngine(reader, script).session(SAMPLING, contexts.stop_token_ids)
        settings = environment or corridor()
        table = play_searching(
            session, contexts, reader, settings, agent, SAMPLING, max_context_tokens, episodes, search, deadline_s
        )
        turns, siblings = take_siblings(table)
        turns, places, images = take_images(turns) if agent.shows_images else (turns, None, None)
        validate(turns, "turns")
        validate(siblings, "siblings")
        assert list(turn_differences(turns, settings, agent)) == []
        assert list(text_differences(turns, settings, reader, contexts, places)) == []
        return SimpleNamespace(
            turns=turns,
            rows=turns.to_pylist(),
            siblings=siblings.to_pylist(),
            session=session,
            places=places,
            images=images,
        )

    return run


BEST_OF_3 = {
    "g0-0": ["Left || Left"],
    "g0-0.0:1": ["Right", "Left"],
    "g0-0.0:2": ["Left"],
    "g0-0.0:1.1:1": ["Right || Right"],
    "g0-0.0:1.1:2": ["Fly"],
}
"""Turn 0 pays -0.2, -0.1, -0.1; turn 1, from cell 1, pays -0.1, -0.1 + 0.9, and -0.2 for two forfeited actions."""


def test_best_candidate_taken_first_of_equals(searched):
    played = searched(BestOfConfig(num_candidates=3), BEST_OF_3)
    choices = [
        (row["executed_actions"], row["origin"], row["num_candidates"], row["num_as_good"]) for row in played.rows
    ]
    assert choices == [(["Right"], "search", 3, 2), (["Right", "Right"], "search", 3, 1)]
    assert played.rows[-1]["success"]
    assert [row["actions_left"] for row in played.rows] == [10, 9]
    names = ("turn", "candidate", "parent", "executed_actions", "score", "chosen")
    assert [tuple(row[name] for name in names) for row in played.siblings] == [
        (0, 0, -1, ["Left", "Left"], pytest.approx(-0.2), False),
        (0, 1, -1, ["Right"], pytest.approx(-0.1), True),
        (0, 2, -1, ["Left"], pytest.approx(-0.1), False),
        (1, 0, 1, ["Left"], pytest.approx(-0.1), False),
        (1, 1, 1, ["Right", "Right"], pytest.approx(0.8), True),
        (1, 2, 1, [], pytest.approx(-0.2), False),
    ]


def test_candidate_sees_only_chosen_turns(searched):
    played = searched(BestOfConfig(num_candidates=3), BEST_OF_3)
    first, second = played.rows
    prompts = [list(request.prompt_ids) for request in played.session.requests]
    assert prompts[:3] == [first["prompt_ids"]] * 3
    assert prompts[3:] == [first["prompt_ids"] + first["response_ids"] + second["prompt_ids"]] * 3
    assert played.session.requests[3].sequence_id == "g0-0.0:1"  # the engine has read its context
    assert len({request.seed for request in played.session.requests}) == 6
    assert len({request.uniforms.tobytes() for request in played.session.requests}) == 6


def test_lookahead_prefers_later_reward(searched):
    actions = {
        "g0-0": ["Right", "Left"],  # -0.1, then -0.1
        "g0-0.0:1": ["Right || Right", "Right", "Left", "Left"],  # -0.2, then 0.9 looking ahead, which is discarded
        "g0-0.0:1.1:1": ["Right"],
    }
    played = searched(LookaheadConfig(num_candidates=2, depth=2), actions)
    assert [row["executed_actions"] for row in played.rows] == [["Right", "Right"], ["Right"]]
    assert [row["score"] for row in played.siblings] == pytest.approx([-0.2, 0.7, -0.2, 0.9])
    assert [row["num_as_good"] for row in played.rows] == [1, 1]
    # per turn: one call for the candidates and one for their continuations
    assert played.session.num_calls == 4


def test_beams_compared_by_return(searched):
    actions = {
        "g0-0": ["Left", "Left", "Left"],
        "g0-0.0:1": ["Right || Right", "Right"],
        "g0-0.1:1": ["Left"],
        "g0-0.0:1.1:1": ["Left"],
        "g0-0.2:1": ["Left"],
    }
    played = searched(BeamConfig(num_candidates=2, beam_width=2), actions)
    assert [row["executed_actions"] for row in played.rows] == [["Right", "Right"], ["Right"]]
    names = ("turn", "candidate", "parent", "score", "chosen")
    assert [tuple(row[name] for name in names) for row in played.siblings] == [
        (0, 0, -1, pytest.approx(-0.1), False),
        (0, 1, -1, pytest.approx(-0.2), True),  # not the best at this turn
        (1, 0, 0, pytest.approx(-0.2), False),
        (1, 1, 0, pytest.approx(-0.2), False),
        (1, 2, 1, pytest.approx(0.7), True),
        (1, 3, 1, pytest.approx(-0.3), False),
    ]
    assert [row["num_as_good"] for row in played.rows] == [2, 1]  # among the candidates of its own context
    assert len(played.session.requests) == 2 + 4 + 2  # the other beginning was continued to its end


def test_failed_candidate_taken_only_as_last(searched, corridor):
    actions = {"g0-0": ["Right || Right"], "g0-0.0:1": ["Left || Left", "Left", "Left"]}
    actions |= {"g0-0.0:1.1:1": ["Left"], "g0-0.0:1.2:1": ["Left"]}
    played = searched(BestOfConfig(num_candidates=2), actions, environment=corridor(fault="step"))
    assert [row["score"] for row in played.siblings] == pytest.approx([None, -0.2, -0.1, -0.1, -0.1, -0.1])
    assert [row["status"] for row in played.rows] == ["ok"] * 3
    failing = searched(
        BestOfConfig(num_candidates=2), lambda *_: say("Right || Right"), environment=corridor(fault="step")
    )
    assert [(row["status"], row["origin"]) for row in failing.rows] == [("env_error", "search")]
    assert [row["chosen"] for row in failing.siblings] == [True, False]


def test_speechless_episodes_end_as_without_search(searched, corridor):
    broken = searched(BestOfConfig(), {}, environment=corridor(fault="reset"))
    assert [(row["status"], row["origin"]) for row in broken.rows] == [("env_error", "policy")]
    late = searched(BestOfConfig(), {}, deadline_s=0)
    assert [(row["status"], row["origin"]) for row in late.rows] == [("timeout", "policy")]
    for search in (BeamConfig(), LookaheadConfig()):
        full = searched(search, lambda *_: say("Left"), max_context_tokens=85)
        assert [(row["status"], row["origin"]) for row in full.rows] == [("ok", "search"), ("truncated", "policy")]
        assert [row["turn"] for row in full.siblings] == [0] * 4
    # LookaheadConfig: -0.1 for the step, and the price of all actions left where the simulated turn has no room
    left = full.rows[1]["actions_left"]
    assert [row["score"] for row in full.siblings] == pytest.approx([-0.1 - 0.1 * left] * 4)
    assert full.session.num_calls == 1
    silent = searched(BestOfConfig(), {}, max_context_tokens=61)
    assert [(row["status"], row["origin"]) for row in silent.rows] == [("truncated", "policy")]


def test_candidates_have_own_replayable_chance(searched):
    settings = BanditSettings(names="phoenix_dragon", high_probability=0.5)
    episodes = [Episode("g0", member, 7, member, 100 + member) for member in range(16)]
    played = searched(BestOfConfig(num_candidates=4), lambda *_: say("Dragon"), environment=settings, episodes=episodes)
    paid = [[row["score"] for row in played.siblings if row["trajectory_id"] == f"g0-{n}"] for n in range(16)]
    assert sum(len(set(scores)) == 2 for scores in paid) > 8  # 7 in 8 turns have both outcomes
    assert [row["action_rewards"] for row in played.rows] == [[max(scores)] for scores in paid]


def test_searched_slips_can_be_replayed(searched):
    settings = FrozenLakeSettings(slip=0.6)
    episodes = [Episode("g0", member, 3, member, member) for member in range(12)]
    script = lambda name, turn: say(("Right", "Down", "Left || Down", "Up")[(len(name) + turn) % 4])  # noqa: E731
    for search in (BestOfConfig(), BeamConfig(), LookaheadConfig()):  # `searched` executes them again
        assert searched(search, script, environment=settings, episodes=episodes).turns.num_rows > 12


@pytest.mark.ci
@pytest.mark.parametrize("context", ["full", "window"])
def test_searched_walk_stores_its_images(searched, context):
    """`searched` executes the actions again and draws the states: these are the pictures of the prompts."""
    settings = FrozenLakeSettings(slip=0.6)
    agent = STATE.model_copy(update={"context": context, "observation": "image"})
    episodes = [Episode("g0", member, 3, member, member) for member in range(12)]
    script = lambda name, turn: say(("Right", "Down", "Left || Down", "Up")[(len(name) + turn) % 4])  # noqa: E731
    for search in (BestOfConfig(), BeamConfig(), LookaheadConfig()):
        played = searched(search, script, environment=settings, agent=agent, episodes=episodes)
        shown = played.places["image"].to_pylist()
        assert sorted(set(shown)) == sorted(played.images["digest"].to_pylist())
        assert len(set(shown)) > 3
        prompts = {tuple(place.image.digest for place in request.images) for request in played.session.requests}
        images: tuple[str, ...] = ()
        for row, digest in zip(played.rows, shown, strict=True):
            images = (digest,) if row["is_context_start"] else (*images, digest)
            assert images in prompts


@pytest.fixture(params=["best_of", "beam", "lookahead"])
def search(request):
    return {"best_of": BestOfConfig(), "beam": BeamConfig(), "lookahead": LookaheadConfig()}[request.param]


@pytest.fixture(scope="module")
def workers():
    return WorkerPool(EngineSpec("torch"), 2)


@pytest.mark.ci
def test_shards_independent_of_order_and_process(job, search, workers):
    job = replace(job, environment=FrozenLakeSettings(slip=0.3), search=search)
    here = LocalPlayer(TorchEngine(num_threads=1, device="cpu"))
    reference = take_siblings(play_shards(here, job, SHARDS))
    backwards = take_siblings(play_shards(here, job, SHARDS[::-1]))
    for table, again in zip(reference, backwards, strict=True):
        keys = [(name, "ascending") for name in ("trajectory_id", "turn")]
        assert content_digest(table.sort_by(keys)) == content_digest(again.sort_by(keys))
    there = take_siblings(play_shards(workers, job, SHARDS))
    assert [content_digest(table) for table in reference] == [content_digest(table) for table in there]
    assert RolloutJob.from_json(job.to_json()) == job


@pytest.mark.parametrize("context", ["full", "window"])
def test_rejected_candidates_leave_the_cache(job, search, context):
    """Every selected response equals that of a new session for its whole context and its row's seed."""
    job = replace(job, search=search, agent=job.agent.model_copy(update={"context": context}))
    engine = TorchEngine(num_threads=1, device="cpu")
    turns, _ = take_siblings(LocalPlayer(engine).play(job, SHARDS[0]))
    tokens: list[int] = []
    for row in turns.to_pylist():
        tokens = (tokens if not row["is_context_start"] else []) + row["prompt_ids"]
        if row["response_ids"]:
            uniforms = token_uniforms(row["sampling_seed"], row["turn"], 12)
            request = Request("alone", tokens, uniforms, derive_seed(row["sampling_seed"], "turn", row["turn"]))
            (response,) = engine.session(job.sampling, stops(job)).generate([request])
            assert response.token_ids == row["response_ids"]
            np.testing.assert_allclose(response.logprobs, row["behaviour_logprobs"], atol=1e-5)
        tokens = tokens + row["response_ids"]


def custom(name: str):
    return TypeAdapter(SearchConfig).validate_python({"type": f"tests.ragen.methods.search.mine:{name}"})


def test_custom_search_is_played_and_checked(job):
    player = LocalPlayer(TorchEngine(num_threads=1, device="cpu"))
    turns, siblings = take_siblings(player.play(replace(job, search=custom("shortest")), SHARDS[0]))
    validate(turns, "turns")
    validate(siblings, "siblings")
    lengths = {}
    for row in siblings.to_pylist():
        lengths.setdefault((row["trajectory_id"], row["turn"]), []).append((len(row["response_ids"]), row["chosen"]))
    assert lengths
    assert all(min(of)[0] == length for of in lengths.values() for length, is_chosen in of if is_chosen)
    with pytest.raises(EngineError, match=r"search 'tests.*:nothing' returned NoneType; expected a table of `turns`"):
        player.play(replace(job, search=custom("nothing")), SHARDS[0])


def stops(job: RolloutJob) -> tuple[int, ...]:
    return ContextBuilder(load_tokenizer(job.folder), job.agent, 12).stop_token_ids


def test_greedy_members_play_without_search(job):
    groups = [("g0", 1), ("g1", 2)]
    (shard,) = make_episodes(groups, group_size=2, shard_groups=2, num_greedy=1)
    assert [(e.trajectory_id, e.is_greedy) for e in shard[:3]] == [("g0-0", False), ("g0-1", False), ("g0-2", True)]
    player = LocalPlayer(TorchEngine(num_threads=1, device="cpu"))
    turns, siblings = take_siblings(player.play(replace(job, search=BestOfConfig()), shard))
    validate(turns, "turns")
    validate(siblings, "siblings")
    rows = turns.to_pylist()
    assert list(dict.fromkeys(row["trajectory_id"] for row in rows)) == [e.trajectory_id for e in shard]
    assert {row["origin"] for row in rows if row["member"] == 2} == {"greedy"}
    assert not {row["trajectory_id"] for row in siblings.to_pylist()} & {"g0-2", "g1-2"}

    (without,) = make_episodes(groups, group_size=2, shard_groups=2)
    plain = player.play(job, shard)
    is_sampled = pc.less(plain["member"], 2)
    assert plain.filter(is_sampled).equals(player.play(job, without))
    cold = replace(job, sampling=job.sampling.model_copy(update={"temperature": 0.0}))
    as_others = [replace(episode, is_greedy=False) for episode in shard if episode.is_greedy]
    greedy = plain.filter(pc.invert(is_sampled))
    assert greedy.drop_columns(["origin"]).equals(player.play(cold, as_others).drop_columns(["origin"]))
