"""Training on images, stage by stage: stored once, read as they were seen, drawn again with the same digest."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from starpo.flows.presets import preset
from starpo.ragen.agents.policy.load import load_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.prompting.forms import write_reasoning
from starpo.ragen.agents.vision.image import Image, image_of
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, ConfigError
from starpo.ragen.envs import make
from starpo.ragen.envs.sokoban.scene import scene
from starpo.ragen.learning.metrics.table import metric_values
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.runs.stored_images import read_turns
from starpo.ragen.runs.verify.texts import text_differences
from starpo.ragen.store import Facts, Store
from starpo.tasks.reward import reward
from starpo.tasks.rollout import rollout
from starpo.tasks.update import update
from starpo.tasks.variance_filter import variance_filter
from starpo.tasks.warm_start import warm_start
from tests.examples import put_folder

SETTINGS = {
    "policy.patch_size": 32,
    "policy.demonstration_turns": 300,
    "policy.warm_start_steps": 10,
    "agent.observation": "image",
    "rollout.num_groups": 2,
    "filter.strategy": "none",
    "filter.should_drop_zero_variance": False,
    "evaluation.num_prompts": 4,
    "evaluation.variants": {},
}
CONFIG = preset("smoke", SETTINGS)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(str(tmp_path_factory.mktemp("visual")))


@pytest.fixture(scope="module")
def played(store):
    """Keys of the first iteration: checkpoint, images, turn_images, turns, rewards, selection."""
    keys = warm_start(CONFIG).carry_out(store)
    keys |= rollout(0, CONFIG, keys["checkpoint"]).carry_out(store)
    keys |= reward(CONFIG.reward, keys["turns"]).carry_out(store)
    return keys | variance_filter(CONFIG.filter, keys["turns"], keys["rewards"]).carry_out(store)


def test_an_image_is_stored_once(store, played):
    images = store.read_table("images", played["turns"])
    places = store.read_table("turn_images", played["turns"])
    turns = store.read_table("turns", played["turns"])
    assert set(images["digest"].to_pylist()) == set(places["image"].to_pylist())
    assert images.num_rows < places.num_rows == turns.num_rows  # with a window of one turn, each prompt shows one
    first = turns.slice(0, 1).to_pylist()[0]
    (place,) = (row for row in places.to_pylist() if (row["trajectory_id"], row["turn"]) == (first["trajectory_id"], 0))
    room = make(CONFIG.environment)
    room.reset(seed=first["env_seed"])
    assert place["image"] == image_of(room).digest
    png = dict(zip(images["digest"].to_pylist(), images["png"].to_pylist(), strict=True))[place["image"]]
    assert (Image.from_png(png).pixels == room.render_rgb()).all()


def test_stored_placeholders_read_as_images(store, played):
    turns = store.read_table("turns", played["turns"])
    turns_read, table = read_turns(store, {"turns": played["turns"]})
    places = {
        (row["trajectory_id"], row["turn"]): row for row in store.read_table("turn_images", played["turns"]).to_pylist()
    }
    assert table is not None
    by_digest = {image.digest: image for image in table.images}
    for stored, read in zip(turns.to_pylist(), turns_read.to_pylist(), strict=True):
        place = places[stored["trajectory_id"], stored["turn"]]
        shown = slice(place["position"], place["position"] + place["num_tokens"])
        assert len(set(stored["prompt_ids"][shown])) == 1
        assert read["prompt_ids"][shown] == table.ids(by_digest[place["image"]], place["num_tokens"]).tolist()
        assert len(read["prompt_ids"]) == len(stored["prompt_ids"])


def test_learner_scores_equal_engines(store, played):
    data = {kind: played[kind] for kind in ("turns", "rewards", "selection")}
    made = update(CONFIG, 0, played["checkpoint"], played["checkpoint"], data).carry_out(store)
    metrics = metric_values(store.read_table("metrics", made["metrics"]))
    assert metrics["update/old_behaviour_gap_max"] < 1e-4


@pytest.mark.parametrize("context", ["full", "window"])
def test_search_stores_images_and_trains(store, played, context):
    searching = {"agent.context": context, "rollout.search.type": "best_of", "update.search_rows": "weigh"}
    config = preset("smoke", SETTINGS | searching)
    keys = rollout(0, config, played["checkpoint"]).carry_out(store)
    turns, images, places = (store.read_table(kind, keys[kind]) for kind in ("turns", "images", "turn_images"))
    assert set(images["digest"].to_pylist()) == set(places["image"].to_pylist())
    siblings = store.read_table("siblings", keys["siblings"])
    assert siblings.num_rows == 4 * pc.sum(pc.equal(turns["origin"], "search")).as_py() > 0
    keys |= reward(config.reward, keys["turns"]).carry_out(store)
    keys |= variance_filter(config.filter, keys["turns"], keys["rewards"]).carry_out(store)
    data = {kind: keys[kind] for kind in ("turns", "rewards", "selection")}
    made = update(config, 0, played["checkpoint"], played["checkpoint"], data).carry_out(store)
    metrics = metric_values(store.read_table("metrics", made["metrics"]))
    assert metrics["update/old_behaviour_gap_max"] < 1e-4  # the engine read the images that are stored


def test_played_again_it_is_the_same(store, played, tmp_path):
    other = Store(str(tmp_path))
    folder = store.local_folder("checkpoint", played["checkpoint"])
    stage = store.manifest("checkpoint", played["checkpoint"]).stage
    facts = Facts(key=played["checkpoint"], stage=stage, settings={}, inputs={}, seed=None)
    put_folder(other, "checkpoint", str(folder), facts)
    again = rollout(0, CONFIG, played["checkpoint"]).carry_out(other)
    for kind in ("images", "turn_images", "turns"):
        digests = {one.manifest(kind, again[kind]).content_digest for one in (store, other)}
        assert len(digests) == 1, kind


def copied(store: Store, key: str, url: Path, images: pa.Table) -> Store:
    """A store with these turns and other images."""
    other = Store(str(url))
    for kind in ("images", "turn_images", "turns"):
        manifest = store.manifest(kind, key)
        facts = Facts(key=key, stage=manifest.stage, settings=manifest.settings, inputs={}, seed=manifest.seed)
        other.put_table(kind, images if kind == "images" else store.read_table(kind, key), facts)
    return other


def test_missing_or_other_image_noticed(store, played, tmp_path):
    key = played["turns"]
    images = store.read_table("images", key)
    with pytest.raises(ArtifactDamagedError, match=r"shows image [0-9a-f]{32}, which is not in images"):
        read_turns(copied(store, key, tmp_path / "fewer", images.slice(1)), {"turns": key})
    turned = pc.take(images["png"], pa.array([*range(1, images.num_rows), 0]))
    swapped = images.set_column(3, images.schema.field("png"), turned)
    with pytest.raises(ArtifactDamagedError, match="have digest"):
        read_turns(copied(store, key, tmp_path / "swapped", swapped), {"turns": key})
    with pytest.raises(ArtifactMissingError):
        read_turns(Store(str(tmp_path / "none")), {"turns": key})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy.patch_size": 32}, "has no effect with agent.observation = 'text'"),
        ({"agent.observation": "image"}, "set policy.patch_size"),
        ({"policy.patch_size": 32, "agent.observation": "both", "rollout.engine": "vllm"}, "rollout.engine = 'vllm'"),
    ],
    ids=["blind prompt", "blind policy", "engine"],
)
def test_unfit_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        preset("smoke", settings)


def test_true_picture_statements_are_paid(store, played):
    """`grounding` reads the text that is stored beside the image."""
    turns = store.read_table("turns", played["turns"]).slice(0, 1)
    room = scene(turns["observation"][0].as_py(), (), {})
    for name, value in {"think": write_reasoning("grounding", "go", room, None), "format_ok": True}.items():
        turns = turns.set_column(turns.schema.get_field_index(name), turns.schema.field(name), pa.array([value]))
    (paid,) = compute_rewards(turns, RewardConfig(components=["environment", "grounding"])).to_pylist()
    assert dict(zip(paid["component_names"], paid["component_values"], strict=True))["grounding"] == 0.5


def test_vagens_recipe_updates_on_images(tmp_path):
    """Its preset in small: form, state rewards, bi-level GAE with a critic, loss on the answer's tokens."""
    small = {
        "policy.hidden_size": 64, "policy.num_layers": 1, "policy.num_heads": 2, "policy.num_kv_heads": 1,
        "policy.intermediate_size": 128, "policy.demonstration_turns": 300, "policy.warm_start_steps": 10,
        "rollout.num_groups": 2, "rollout.shard_groups": 2, "rollout.group_size": 2, "evaluation.num_prompts": 4,
        "filter.strategy": "none", "filter.should_drop_zero_variance": False, "diagnostics.probe_every": 0,
    }  # fmt: skip
    config, store = preset("frozen-lake-visual-trico", small), Store(str(tmp_path))
    keys = warm_start(config).carry_out(store)
    keys |= rollout(0, config, keys["checkpoint"]).carry_out(store)
    keys |= reward(config.reward, keys["turns"]).carry_out(store)
    keys |= variance_filter(config.filter, keys["turns"], keys["rewards"]).carry_out(store)
    data = {kind: keys[kind] for kind in ("turns", "rewards", "selection")}
    made = update(config, 0, keys["checkpoint"], keys["checkpoint"], data).carry_out(store)
    metrics = metric_values(store.read_table("metrics", made["metrics"]))
    assert metrics["update/old_behaviour_gap_max"] < 1e-4
    names = store.read_table("rewards", keys["rewards"])["component_names"][0].as_py()
    assert {"grounding", "world_model", "reasoning_format"} <= set(names)


def test_swapped_picture_is_detected(store, played):
    key = played["turns"]
    tokenizer = load_tokenizer(store.local_folder("checkpoint", played["checkpoint"]))
    turns, places = (store.read_table(kind, key) for kind in ("turns", "turn_images"))
    contexts = ContextBuilder(tokenizer, CONFIG.agent, CONFIG.rollout.max_response_tokens)
    compared = turns, CONFIG.environment, tokenizer, contexts
    assert list(text_differences(*compared, places)) == []
    digests = ["0" * 32, *places["image"].to_pylist()[1:]]
    forged = places.set_column(4, places.schema.field("image"), pa.array(digests))
    (difference,) = text_differences(*compared, forged)
    assert "turn 0: images is" in difference
