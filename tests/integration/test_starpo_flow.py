"""The flow on a real Prefect server and a real store: stored stages, resuming, imitation, bad data."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from starpo.flows.api.diagnosis import diagnose_run
from starpo.flows.console.listing import success_line
from starpo.flows.presets import preset
from starpo.flows.starpo import starpo
from starpo.ragen.agents.policy.initial_states import FILE
from starpo.ragen.agents.rollout import shards
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.core.errors import DataError, StoreError
from starpo.ragen.store import Store
from starpo.ragen.studies.outcomes import success_by_prompt
from starpo.tasks.evaluate import evaluate
from starpo.tasks.loop.verify import verify_run

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, prefect_server: None, begun: Callable[..., str]
) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("store")
    return folder, starpo(preset("smoke"), preset="smoke", store=begun(folder))


def test_every_stage_is_stored_and_recorded(finished: tuple[Path, str]) -> None:
    folder, run = finished
    store = Store(str(folder))
    stages = [set(stages) for stages in store.runs.iterations(run).values()]
    every = {"rollout", "reward", "variance_filter", "diagnose", "update", "evaluate:sokoban"}
    assert stages == [every | {"warm_start", "probe"}, every, {"evaluate:sokoban"}]
    assert store.runs.state(run).status == "completed"


@pytest.mark.thorough
@pytest.mark.parametrize("changes", [{"num_prompts": 64}, {"num_prompts": 64, "panel_seed": 5}])
def test_training_prompts_not_in_success(finished: tuple[Path, str], changes: dict[str, int]) -> None:
    """A larger panel, also of another seed, shares states with rollouts and demonstrations; they are measured apart."""
    folder, run = finished
    store, config = Store(str(folder)), preset("smoke")
    stages = store.runs.iterations(run)
    began = set(json.loads(store.read_file("checkpoint", stages[0]["warm_start"]["checkpoint"], FILE)))
    for iteration in (0, 1):
        turns = store.read_table("turns", stages[iteration]["rollout"]["turns"])
        began |= set(turns["initial_state_digest"].to_pylist())
    evaluation = config.evaluation.model_copy(update=changes)
    settings = (config.environment, config.agent, config.rollout, evaluation)
    work = evaluate(2, "sokoban", *settings, stages[1]["update"]["checkpoint"], lineage=store.url)
    key = work.carry_out(store)["episodes"]
    rows = store.read_table("episodes", key).to_pylist()
    unseen = [row["success"] for row in rows if row["initial_state_digest"] not in began]
    assert 0 < len(unseen) < len(rows) == 64
    assert all((row["cell"] == "sokoban/seen") == (row["initial_state_digest"] in began) for row in rows)
    headline = store.manifest("episodes", key).headline
    assert headline["evaluation/sokoban/num_seen_prompts"] == 64 - len(unseen)
    assert headline["evaluation/sokoban/success"] == pytest.approx(sum(unseen) / len(unseen))
    counted = success_by_prompt(store, key)
    assert not {digest for _, digest in counted} & began
    assert len(counted) == len(unseen)


def test_run_without_kept_groups_stops(tmp_path: Path) -> None:
    from starpo.ragen.core.errors import NothingKeptError

    config = preset("smoke", {"filter.max_empty_iterations": 2, "policy.warm_start_steps": 0, "iterations": 3})
    with pytest.raises(NothingKeptError):
        starpo(config, preset="smoke", store=str(tmp_path), run="empty")
    store = Store(str(tmp_path))
    state = store.runs.state("empty")
    assert state.status == "failed"
    assert "kept no group in 2 iterations in a row: nothing is learned" in state.message
    assert state.warning.startswith("since iteration 0, nothing is learned: no response is well-formed")
    assert "raise rollout.max_response_tokens" in state.warning
    assert (state.metrics["iteration"], state.metrics["updates"]) == (1, 0)
    assert state.metrics["seconds"] > 0
    assert "after 0 updates" in success_line(store, "empty")
    assert diagnose_run(store, "empty", every=0).verdict.status == "stalled"


def count_turns_from_one(turns: pa.Table) -> pa.Table:
    """Number turns from 1; rewards can still be computed from the result."""
    later = pc.add(turns["turn"], pa.scalar(1, turns.schema.field("turn").type))
    place = turns.schema.get_field_index("turn")
    return turns.set_column(place, turns.field(place), later)


def test_contract_breaking_rollout_stops_run(
    finished: tuple[Path, str], tmp_path: Path, begun: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, play = preset("smoke"), shards.play_shards
    num_rollouts = 0

    def play_wrongly(player: shards.ShardPlayer, job: RolloutJob, *args: Any, **settings: Any) -> pa.Table:
        nonlocal num_rollouts
        turns = play(player, job, *args, **settings)
        if job.sampling != config.rollout.sampling:  # an evaluation
            return turns
        num_rollouts += 1
        return turns if num_rollouts == 1 else count_turns_from_one(turns)

    monkeypatch.setattr(shards, "play_shards", play_wrongly)
    with pytest.raises(DataError, match=r"dataset 'turns'.*\n- column 'turn' counts 0, 1, 2"):
        starpo(config, preset="smoke", store=begun(tmp_path), run="broken")
    store = Store(str(tmp_path))
    state = store.runs.state("broken")
    assert state.status == "failed"
    assert "column 'turn'" in state.message
    assert len(list((tmp_path / "quarantine").iterdir())) == 1
    folder, run = finished
    whole = Store(str(folder)).runs.iterations(run)
    assert store.runs.iterations("broken")[0] == whole[0]
    for kind, stage in (("turns", "rollout"), ("rewards", "reward"), ("selection", "variance_filter")):
        assert not store.has(kind, whole[1][stage][kind])
    assert sorted(store.runs.iterations("broken").get(1, {})) in ([], ["evaluate:sokoban"])


@pytest.fixture(scope="module")
def pretrained_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Causal LM with random weights in Hugging Face's layout, of another architecture than the built-in one."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from starpo.ragen.agents.policy.save import save_policy
    from starpo.ragen.agents.policy.tokenizer import make_tokenizer

    folder, tokenizer = tmp_path_factory.mktemp("model"), make_tokenizer()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
                num_key_value_heads=1, intermediate_size=64, max_position_embeddings=4096,
                eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
            )
        )  # fmt: skip
    save_policy(model, tokenizer, folder)
    return folder


def test_fine_tuning_alone_has_no_updates(pretrained_folder: Path, tmp_path: Path) -> None:
    overrides = {
        "iterations": 0,
        "policy": {
            "type": "pretrained", "name_or_path": str(pretrained_folder),
            "fine_tuning": {"steps": 3, "batch_size": 8, "demonstration_turns": 24, "lora": {"rank": 4}},
        },
    }  # fmt: skip
    run = starpo(preset="smoke", overrides=overrides, store=str(tmp_path))
    store = Store(str(tmp_path))
    assert set(store.runs.iterations(run)[0]) == {"warm_start", *(f"evaluate:{name}" for name in ("sokoban",))}
    assert store.runs.state(run).status == "completed"
    headline = store.manifest("checkpoint", store.runs.iterations(run)[0]["warm_start"]["checkpoint"]).headline
    assert headline["demonstration_success"] == 1.0
    assert verify_run(store, run).outcome == "verified"


def test_run_imitates_anothers_successes_first(finished: tuple[Path, str], tmp_path: Path) -> None:
    folder, base = finished
    store = Store(str(folder))
    recorded = store.runs.iterations(base)
    policy = store.local_folder("checkpoint", recorded[0]["warm_start"]["checkpoint"])
    tuning = {"runs": [f"{base}:0-1"], "steps": 3, "batch_size": 8}
    overrides = {"policy": {"type": "pretrained", "name_or_path": policy, "fine_tuning": tuning}, "iterations": 1}
    run = starpo(preset="smoke", overrides=overrides, store=str(folder))
    stages = store.runs.iterations(run)
    made = store.manifest("checkpoint", stages[0]["warm_start"]["checkpoint"])
    assert made.inputs["turns"] == recorded[0]["rollout"]["turns"]
    assert made.inputs["turns:1"] == recorded[1]["rollout"]["turns"]
    assert made.headline["demonstration_success"] == 1.0
    assert "update" in stages[0]
    assert verify_run(store, run).outcome == "verified"
    tuning["runs"] = [f"{base}:7"]
    with pytest.raises(StoreError, match=r"has no rollout .* in iteration 7"):
        starpo(preset="smoke", overrides=overrides, store=str(folder), run="late")
