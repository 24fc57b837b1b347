"""The stage `warm_start`: whether its result is marked as deterministic, and stored episodes as its input."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from starpo.flows.cli import app
from starpo.flows.presets import preset
from starpo.ragen.agents.policy.initial_states import read_states
from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.config.device import Device
from starpo.ragen.config.load import apply_overrides
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError, LearnerError
from starpo.ragen.envs.sokoban.environment import Sokoban
from starpo.ragen.learning import demonstrations, imitation
from starpo.ragen.learning.learners.data.trajectories import assemble
from starpo.ragen.readiness import check_ready
from starpo.ragen.runs.loaded_learner import LoadedLearner
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.store import Store
from starpo.tasks.first_checkpoint import stored_episodes
from starpo.tasks.first_checkpoint.stored_episodes import episode_keys, has_texts, imitation_lines
from starpo.tasks.held_out import held_out
from starpo.tasks.reward import reward
from starpo.tasks.rollout import rollout
from starpo.tasks.variance_filter import variance_filter
from starpo.tasks.warm_start import warm_start

GPU = Device("cuda", "NVIDIA H200")
FAST_GPU = replace(GPU, is_repeatable=False)
POLICY = Path(__file__).parents[1] / "golden" / "checkpoint"


@pytest.mark.parametrize(
    ("fine_tuning", "device", "is_deterministic"),
    [({}, GPU, True), ({}, FAST_GPU, False), ({}, Device(), True), (None, FAST_GPU, True)],
    ids=["fine-tuned on a GPU", "on one that need not repeat", "on the CPU", "copied"],
)
def test_fine_tuning_determinism_follows_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fine_tuning: dict | None, device: Device, is_deterministic: bool
) -> None:
    def fine_tune(policy: object, data: object, folder: Path, *_: object) -> dict[str, float]:
        (folder / "config.json").write_text("{}")
        return {}

    monkeypatch.setattr(imitation, "fine_tune", fine_tune)
    monkeypatch.setattr(demonstrations, "demonstrate_turns", lambda *_: None)
    monkeypatch.setattr(Device, "here", lambda: device)
    settings = {"type": "pretrained", "name_or_path": str(POLICY)}
    config = preset("smoke", {"policy": settings | ({} if fine_tuning is None else {"fine_tuning": fine_tuning})})
    work = warm_start(config)
    (made,) = work.do(work, Store(str(tmp_path)), ModelPlacement())
    assert made.is_deterministic == is_deterministic


def test_fine_tuning_learner_is_in_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"policy": {"type": "pretrained", "name_or_path": str(POLICY), "fine_tuning": {}}}
    settings |= {"update.optimiser.type": "adamw", "update.deepspeed.num_ranks": 2}
    here, ranks = preset("smoke", settings), preset("smoke", settings | {"update.learner": "deepspeed"})
    assert "learner" not in warm_start(here).settings
    declared = {"type": "deepspeed", "num_ranks": 2, "zero_stage": 2, "offload_optimizer": False}
    assert warm_start(ranks).settings == warm_start(here).settings | {"learner": declared}

    learners = []
    monkeypatch.setattr(LoadedLearner, "of", lambda _, update: update.learner)
    monkeypatch.setattr(demonstrations, "demonstrate_turns", lambda *_: None)
    monkeypatch.setattr(imitation, "fine_tune", lambda *given: learners.append(given[-1]) or {})
    for config in (here, ranks):
        work = warm_start(config)
        list(work.do(work, Store(str(tmp_path)), ModelPlacement()))
    assert learners == [None, "deepspeed"]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, str]:
    """A store with the rollout of iteration 0 of a run `base`, and the folder of the policy that played it.

    The golden policy succeeds in a third of its episodes.
    """
    store = Store(str(tmp_path_factory.mktemp("played")))
    config = preset("smoke", {"policy": {"type": "pretrained", "name_or_path": str(POLICY)}})
    checkpoint = warm_start(config).carry_out(store)["checkpoint"]
    turns = rollout(0, config, checkpoint).carry_out(store)["turns"]
    paid = reward(config.reward, turns).carry_out(store)["rewards"]
    selected = variance_filter(config.filter, turns, paid).carry_out(store)["selection"]
    store.runs.create("base", flow="starpo", preset=None, config={})
    for name, keys in {"rollout": {"turns": turns}, "reward": {"rewards": paid},
                        "variance_filter": {"selection": selected}}.items():  # fmt: skip
        store.runs.record_stage("base", 0, name, keys)
    return store, store.local_folder("checkpoint", checkpoint)


def expert(folder: str, **changes: object) -> StarPOConfig:
    """Settings of a policy that imitates what `base` played well."""
    tuning = {"runs": ["base:0"], "steps": 4, "batch_size": 4} | changes
    return preset("smoke", {"policy": {"type": "pretrained", "name_or_path": folder, "fine_tuning": tuning}})


def test_policy_imitates_successes_of_run(played: tuple[Store, str], tmp_path: Path) -> None:
    store, folder = played
    config = expert(folder)
    stored = episode_keys(config.policy, store.url)
    work = warm_start(config, stored)
    key = work.carry_out(store)["checkpoint"]
    made = store.manifest("checkpoint", key)
    assert made.inputs == stored == {kind: stored[kind] for kind in ("turns", "rewards", "selection")}
    turns = store.read_table("turns", stored["turns"]).to_pylist()
    succeeded = {row["trajectory_id"] for row in turns if row["success"]}
    states = {row["initial_state_digest"] for row in turns if row["trajectory_id"] in succeeded}
    assert made.headline["num_episodes"] == len(succeeded) > 0
    assert made.headline["demonstration_success"] == 1.0
    assert made.headline["num_excluded"] == 0
    assert states <= set(read_states(store.local_folder("checkpoint", key)))


@pytest.mark.parametrize("is_exhaustive", [True, False])
def test_panel_episodes_excluded_unless_exhaustive(
    played: tuple[Store, str], monkeypatch: pytest.MonkeyPatch, is_exhaustive: bool
) -> None:
    store, folder = played
    config, stored = expert(folder), episode_keys(expert(folder).policy, store.url)
    states = set(store.read_table("turns", stored["turns"])["initial_state_digest"].to_pylist())
    panel = replace(held_out(config)[0], state_digests=tuple(states), is_exhaustive=is_exhaustive)
    monkeypatch.setattr(stored_episodes, "held_out", lambda config: [panel])
    work = warm_start(config.model_copy(update={"fresh": str(is_exhaustive)}), stored)
    if is_exhaustive:
        assert store.manifest("checkpoint", work.carry_out(store)["checkpoint"]).headline["num_excluded"] == 0
    else:
        with pytest.raises(ConfigError, match=r"of those that qualify, \d+ begin on a panel"):
            work.carry_out(store)


def test_warm_start_key_follows_stored_rollouts(played: tuple[Store, str]) -> None:
    store, folder = played
    config, stored = expert(folder), episode_keys(expert(folder).policy, store.url)
    assert warm_start(config, stored | {"turns": "0" * 32}) != warm_start(config, stored)
    assert warm_start(expert(folder, runs=["renamed:0"]), stored) == warm_start(config, stored)
    assert warm_start(expert(folder, min_return=1.0), stored) != warm_start(config, stored)
    assert warm_start(expert(folder, demonstration_skill=0.5), stored) == warm_start(config, stored)


def test_episodes_with_other_tokenizer_are_rejected(played: tuple[Store, str], tmp_path: Path) -> None:
    store, folder = played
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    words = json.loads((other / "tokenizer.json").read_text())
    vocabulary = words["model"]["vocab"]
    pieces = list(vocabulary)[300:]
    vocabulary |= dict(zip(pieces, [vocabulary[piece] for piece in reversed(pieces)], strict=True))
    (other / "tokenizer.json").write_text(json.dumps(words))
    config = expert(str(other))
    with pytest.raises(ConfigError, match=r"policy.fine_tuning.runs: .* another tokenizer"):
        warm_start(config, episode_keys(config.policy, store.url)).carry_out(store)


@pytest.fixture(scope="module")
def demos(played: tuple[Store, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Adds a run to the store, 60 conversations of a teacher and three that cannot be used; returns its iteration."""
    store, _ = played
    file = tmp_path_factory.mktemp("demos") / "teacher.jsonl"
    talks = [talk(f"{number} #", "<answer>Up || Down</answer>") for number in range(60)]
    talks += [talk("q" * 400, "Up"), talk("q", "a<|im_end|>"), [*talk("q", "a"), {"role": "assistant", "content": "b"}]]
    file.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in talks))
    made = CliRunner().invoke(app, ["import", "demos", str(file), "--format", "messages", "--store", store.url])
    assert made.exit_code == 0, made.output
    return "demos:0"


def talk(question: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def test_texts_are_imitated_beside_episodes(played: tuple[Store, str], demos: str) -> None:
    """Without rewards, log-probs or tokens; those that cannot be are counted, and the form is learned."""
    store, folder = played
    config = expert(folder, runs=["base:0", demos], episodes="all", steps=30, batch_size=16, learning_rate=3e-3)
    summary, *left_out = imitation_lines(config, store.url)
    stored = episode_keys(config.policy, store.url)
    work = warm_start(config, stored, should_render=has_texts(stored, store.url))
    key = work.carry_out(store)["checkpoint"]
    headline = store.manifest("checkpoint", key).headline
    num_played = headline["num_episodes"] - 60
    assert num_played > 0
    assert summary.startswith(f"fine-tuning: {headline['num_episodes']:.0f} episodes (60 conversations of text, ")
    assert (headline["num_texts"], headline["num_left_out"]) == (60, 3)
    reasons = ["two messages of the assistant in a row", "its text has <|im_end|>", "more than 256 tokens"]
    assert all(any(reason in line for line in left_out) for reason in reasons)
    first, later = (responses_to(place, "99 #") for place in (folder, store.local_folder("checkpoint", key)))
    assert first != later == "<answer>Up || Down</answer><|im_end|>"


def responses_to(folder: str, question: str) -> str:
    model, tokenizer = load_policy(folder)
    prompt = tokenizer.apply_chat_template(
        talk(question, "")[:1], add_generation_prompt=True, return_tensors="pt", return_dict=False
    )
    made = model.generate(prompt, max_new_tokens=8, do_sample=False)
    return str(tokenizer.decode(made[0, prompt.shape[1] :]))


def test_warm_start_key_follows_text_rendering(played: tuple[Store, str], demos: str) -> None:
    """The key of recorded episodes alone is that of a version that knew no texts."""
    store, folder = played
    config = expert(folder, runs=[demos], episodes="all")
    stored = episode_keys(config.policy, store.url)
    assert stored.keys() == {"turns"}
    assert has_texts(stored, store.url)
    assert not has_texts(episode_keys(expert(folder).policy, store.url), store.url)
    changes = ({}, {"agent.chat_template": "{{ messages }}"}, {"rollout.max_context_tokens": 512})
    keys = {warm_start(apply_overrides(config, change, "test"), stored, should_render=True).key for change in changes}
    assert len(keys) == 3
    with pytest.raises(ConfigError, match=r"not told by the source of 63: policy\.fine_tuning\.episodes = 'all'"):
        [*imitation_lines(expert(folder, runs=[demos]), store.url)]


def test_texts_cannot_be_trained_on(played: tuple[Store, str], demos: str) -> None:
    store, _ = played
    turns = store.read_table("turns", episode_keys(expert("x", runs=[demos]).policy, store.url)["turns"])
    num_rows = turns.num_rows
    paid = turns.select(["trajectory_id", "turn"]).append_column("is_valid", pa.array([True] * num_rows))
    for name in ("total", "trajectory_return", "normalised_return"):
        paid = paid.append_column(name, pa.array([1.0] * num_rows))
    kept = pa.table({"group_id": turns["group_id"], "kept": pa.array([True] * num_rows)})
    with pytest.raises(LearnerError, match=r"without the tokens of its responses\. It can be imitated"):
        assemble(turns, paid, kept)


def test_nothing_to_imitate_fails_before_loading(played: tuple[Store, str], monkeypatch: pytest.MonkeyPatch) -> None:
    store, folder = played
    config = expert(folder, min_return=1e6)
    monkeypatch.setattr(imitation, "load_pretrained", None)
    with pytest.raises(ConfigError, match=r"none of \d+ stored episodes .* at least 1e\+06"):
        warm_start(config, episode_keys(config.policy, store.url)).carry_out(store)


def test_missing_demonstrator_requires_stored_episodes(
    played: tuple[Store, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = played
    monkeypatch.setattr(Sokoban, "demonstrator", "")
    with pytest.raises(ConfigError, match=r"no demonstrator, and policy\.fine_tuning imitates one") as error:
        check_ready(expert(folder, runs=[]), "settings")
    assert "policy.fine_tuning.runs" in str(error.value)
    check_ready(expert(folder), "settings")
