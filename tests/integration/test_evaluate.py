"""`starpo.evaluate` in this process: a run, players without a model, and a server that fails, on the same states."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import starpo
from starpo.flows.presets import preset
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.exchange.choosing import parse_choice
from starpo.ragen.evidence.exchange.exporting import export_run
from starpo.ragen.evidence.exchange.played import Recorded
from starpo.ragen.store import Store
from starpo.ragen.studies.studies import Sweeps
from starpo.schemas.datasets import SEEN
from tests.openai_server import Server

SMALL = {
    "policy.warm_start_steps": 3, "policy.demonstration_turns": 60, "evaluation.num_prompts": 6, "iterations": 1,
    "rollout.num_groups": 2, "rollout.group_size": 2, "filter.should_drop_zero_variance": False, "filter.keep": 1.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Store with a run `mine` of one iteration."""
    store = tmp_path_factory.mktemp("evaluate") / "store"
    starpo.train("smoke", SMALL, store=store, run="mine", quiet=True)
    return Store(str(store))


def test_all_play_states_of_run(store: Store) -> None:
    result = starpo.evaluate(["mine", "mine:0", "random", "solver"], store=store.url, quiet=True)
    assert result.leaderboard[0].run == "solver"
    assert {(row.run, row.iteration) for row in result.leaderboard} == {
        ("mine", 1), ("mine", 0), ("random", 0), ("solver", 0)
    }  # fmt: skip
    states = {
        label: sorted(store.read_table("episodes", key)["env_seed"].to_pylist()) for label, key in result.cells.items()
    }
    assert len(set(map(tuple, states.values()))) == 1


def test_stored_cells_not_played_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = starpo.evaluate("random", "Bandit", num_prompts=4, store=store.url, quiet=True)

    def fail(*_: object) -> None:
        raise AssertionError("it was played again")

    monkeypatch.setattr("starpo.ragen.runs.work.Work.carry_out", fail)
    assert starpo.evaluate("random", "Bandit", num_prompts=4, store=store.url, quiet=True) == first


def test_further_temperatures_and_seeds_are_added(store: Store) -> None:
    result = starpo.evaluate(
        "random", "Bandit", num_prompts=4, seeds=(0, 1), temperatures=(0.5, 1.0), store=store.url, quiet=True
    )
    assert len(result.cells) == 4
    assert {tuple(row.scores["bandit"].seeds) for row in result.leaderboard} == {(0, 1)}


def test_states_of_rollout_are_panel(store: Store) -> None:
    turns = starpo.open_run("mine", store.url).table("turns", 0)
    result = starpo.evaluate(["mine:0", "mine:1", "solver"], "mine:0", store=store.url, quiet=True)
    (panel,) = result.environments
    assert panel == "states of mine 0"
    for key in result.cells.values():
        episodes = store.read_table("episodes", key)
        assert set(episodes["env_seed"].to_pylist()) == set(turns["env_seed"].to_pylist())
        counted = [cell for cell in episodes["cell"].to_pylist() if not cell.endswith(SEEN)]
        assert len(counted) == len(episodes)  # although training started from them


def test_episodes_are_exported_with_prompts(store: Store, tmp_path: Path) -> None:
    result = starpo.evaluate("random", "Bandit", num_prompts=4, store=store.url, quiet=True)
    (run,) = result.sweep.subjects["random"]
    export_run(Recorded(store, run, panel="bandit"), "messages", tmp_path / "chats", parse_choice([]))
    (file,) = (tmp_path / "chats").glob("*.jsonl")
    chats = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(chats) == 4
    assert all("Your available actions are" in chat["messages"][0]["content"] for chat in chats)
    (key,) = result.cells.values()
    episodes = store.read_table("episodes", key).to_pylist()
    returns = {(row["env_seed"], row["member"]): row["episode_return"] for row in episodes}
    assert {(chat["env_seed"], chat["member"]): chat["return"] for chat in chats} == returns
    with pytest.raises(ConfigError, match="has no evaluation on panel 'sokoban'; panels: bandit"):
        export_run(Recorded(store, run, panel="sokoban"), "messages", tmp_path / "none", parse_choice([]))


def test_exported_turns_have_prompts(store: Store, tmp_path: Path) -> None:
    """The tokens of what `solver` says are not known; those of the prompts around it are."""
    result = starpo.evaluate("solver", "Sokoban", num_prompts=4, store=store.url, quiet=True)
    (run,) = result.sweep.subjects["solver"]
    choice = parse_choice(["return>=1"])
    exported = export_run(Recorded(store, run, panel="sokoban"), "messages", tmp_path / "chats", choice)
    assert exported.num_chosen == 4  # by their returns
    (file,) = (tmp_path / "chats").glob("*.jsonl")
    chats = [json.loads(line)["messages"] for line in file.read_text(encoding="utf-8").splitlines()]
    later = [chat[2]["content"] for chat in chats if len(chat) > 2]
    assert later
    assert all("You have" in text for text in later)
    assert "Your available actions are" in chats[0][0]["content"]
    export_run(Recorded(store, run, panel="sokoban"), "atif", tmp_path / "documents", choice)
    document = json.loads(min((tmp_path / "documents").rglob("*.json")).read_text(encoding="utf-8"))
    assert document["agent"]["model_name"] == "solver"  # not the policy whose tokenizer wrote the text
    assert document["extra"]["ragen"]["return"] >= 1


def test_exported_policy_sees_its_prompts(store: Store, tmp_path: Path) -> None:
    folder = starpo.open_run("mine", store.url).checkpoint(1, tmp_path / "policy")
    result = starpo.evaluate(["mine", str(folder)], "mine", num_prompts=2, store=store.url, quiet=True)
    (run,) = result.sweep.subjects[str(folder)]
    limit = store.runs.get("mine").config["rollout"]["max_response_tokens"]
    assert store.runs.get(run).config["rollout"]["max_response_tokens"] == limit
    shown = [
        [row["prompt_ids"] for row in store.read_table("episode_turns", key).to_pylist() if row["turn"] == 0]
        for key in result.cells.values()
    ]
    assert len(shown[0]) == 2
    assert shown[0] == shown[1]
    (folder / "agent_settings.json").write_text('{"promt": "state"}')
    with pytest.raises(starpo.StarPOError, match=r"agent_settings\.json': promt = 'state': no such setting"):
        starpo.evaluate(str(folder), "mine", store=store.url, quiet=True)
    (folder / "agent_settings.json").write_text('{"max_response_tokens": 0}')
    with pytest.raises(starpo.StarPOError, match=r"agent_settings\.json': max_response_tokens = 0: should be"):
        starpo.evaluate(str(folder), "mine", store=store.url, quiet=True)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    pytest.importorskip("openai")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.02)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        server.shutdown()


def test_server_that_fails_loses_nothing(store: Store, server: Server) -> None:
    server.say = "<think>I try.</think><answer>Phoenix</answer>"
    server.script = [{3: "500", 5: "reset", 7: "429"}.get(n % 10, "ok") for n in range(100)]
    subject = f"a-model@{server.url}"
    result = starpo.evaluate([subject, "random"], "Bandit", num_prompts=24, store=store.url, quiet=True)
    score = next(row.scores["bandit"] for row in result.leaderboard if row.run == subject)
    assert (score.num_prompts, score.num_episodes, result.num_errors) == (24, 24, 0)
    assert {what for _, what, *_ in server.requests} == {"ok", "500", "429", "reset"}
    (run,) = result.sweep.subjects[subject]
    metrics = starpo.open_run(run, store.url).table("metrics").to_pylist()
    retries = [row["value"] for row in metrics if row["name"] == "evaluation/bandit/engine_retries"]
    assert retries == [len(server.requests) - 24]
    assert (result.num_requests, result.num_repeated) == ({subject: 24}, {subject: len(server.requests) - 24})
    repeated = f"{subject}: {len(server.requests) - 24} requests had to be sent again until all 24 were answered"
    assert repeated in " ".join(result.warnings)


def test_tokens_of_server_are_stored(store: Store, server: Server) -> None:
    """A server of vLLM gives the tokens of its responses; its log-probs are not asked for."""
    tokenizer = starpo.open_run("mine", store.url).load_policy(0)[1]
    server.token_ids = tokenizer.encode("<answer>Up</answer>", add_special_tokens=False)
    server.say = str(tokenizer.decode(server.token_ids))
    options = {"engine": "openai", "openai.base_url": server.url, "openai.model": "a-model", "openai.protocol": "vllm"}
    given = {f"rollout.{name}": value for name, value in options.items()}
    result = starpo.evaluate("mine:0", (), given, store=store.url, quiet=True)
    (key,) = result.cells.values()
    turns = store.read_table("episode_turns", key).to_pylist()
    assert {tuple(row["response_ids"]) for row in turns} == {tuple(server.token_ids)}
    assert not any(row["behaviour_logprobs"] for row in turns)


def test_server_that_is_not_there(store: Store) -> None:
    pytest.importorskip("openai")
    given = {"rollout.openai.max_retries": 0}
    with pytest.raises(starpo.StarPOError, match="cannot be reached"):
        starpo.evaluate("m@http://127.0.0.1:9/v1", "Bandit", given, num_prompts=2, store=store.url, quiet=True)


def test_failed_cell_is_logged_once(
    store: Store, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("openai")
    options = {"engine": "openai", "openai.base_url": "http://127.0.0.1:9/v1", "openai.model": "m"}
    given = {f"rollout.{name}": value for name, value in options.items()} | {"rollout.openai.max_retries": 0}
    with pytest.raises(starpo.StarPOError, match="1 of 1 cells"):
        starpo.evaluate("mine:0", (), given, store=store.url)
    assert caplog.text.count("cannot be reached") == 1
    assert "cannot be reached" not in "".join(capsys.readouterr())


def test_absent_server_leaves_others_evaluated(store: Store) -> None:
    pytest.importorskip("openai")
    subjects, given = ["m@http://127.0.0.1:9/v1", "random"], {"rollout.openai.max_retries": 0}
    with pytest.raises(starpo.StarPOError, match=r"1 of 2 subjects failed:\n  m@http://127\.0\.0\.1:9/v1: .*cannot be"):
        starpo.evaluate(subjects, "Bandit", given, num_prompts=2, name="rest", store=store.url, quiet=True)
    assert [row.run for row in Sweeps(store.url).get("rest").leaderboard] == ["random"]


def test_panels_of_different_sizes_are_refused(store: Store) -> None:
    starpo.train("smoke", {**SMALL, "evaluation.num_prompts": 4}, store=store.url, run="other", quiet=True)
    with pytest.raises(ConfigError, match=r"evaluation\.num_prompts is 6 in run mine and 4 in run other"):
        starpo.evaluate(["mine", "other"], store=store.url, quiet=True)
    assert preset("smoke").evaluation.num_prompts != 6
