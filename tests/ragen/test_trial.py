"""A trial of a policy: what it measures, its pace, and its advice."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from starpo.flows.console.trial import describe, show_trial
from starpo.flows.presets import preset
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError, EnvironmentFault
from starpo.ragen.envs.sokoban.environment import Sokoban
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.store import Store
from starpo.ragen.trial import Trial, _summarise, play_trial

SEEN = Trial(
    num_episodes=16, num_failed=0, num_responses=16, well_formed=1.0, response_tokens=20.0, at_limit=0.0, success=0.5,
    num_groups=4, num_differing=4, return_std=0.3, seconds=8.0, tokens_s=40.0,
)  # fmt: skip


def of(model: Path | str = "nobody/none", **settings: Any) -> StarPOConfig:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return preset("smoke", {"policy.type": "pretrained", "policy.name_or_path": str(model), **named})


def test_summary_by_hand(make_turns: Callable[..., pa.Table]) -> None:
    """Two groups of two: in g0 one member pulls 1.0 and the other is cut; in g1 both earn the same."""
    rows = [
        {"trajectory_id": "g0-0", "group_id": "g0", "action_rewards": [1.0], "success": True, "response_ids": [3] * 4},
        {"trajectory_id": "g0-1", "group_id": "g0", "member": 1, "action_rewards": [], "executed_actions": [],
         "format_ok": False, "finish_reason": "length", "status": "format_error", "response_ids": [3] * 10},
        {"trajectory_id": "g1-0", "group_id": "g1", "action_rewards": [0.2], "response_ids": [3] * 2},
        {"trajectory_id": "g1-1", "group_id": "g1", "member": 1, "action_rewards": [0.2], "response_ids": [3] * 4},
    ]  # fmt: skip
    turns = make_turns(rows)
    rewards = compute_rewards(turns, RewardConfig(components=["environment"]))
    trial = _summarise(turns, rewards, 5.0)
    assert (trial.num_episodes, trial.num_responses, trial.num_groups, trial.num_differing) == (4, 4, 2, 1)
    assert (trial.well_formed, trial.at_limit, trial.success) == (0.75, 0.25, 0.25)
    assert trial.response_tokens == 5.0  # (4 + 10 + 2 + 4) / 4
    assert trial.tokens_s == 4.0  # 20 tokens in 5 s
    assert trial.return_std == pytest.approx(0.25)  # std of (1, 0) is 0.5, of (0.2, 0.2) is 0


def advice(trial: Trial, config: StarPOConfig, *, is_start: bool = True) -> str:
    (sentence,) = trial.advice(config, is_start=is_start)
    return sentence


def test_a_cut_response_needs_room() -> None:
    sentence = advice(replace(SEEN, at_limit=0.2), of())
    assert sentence.startswith("20% of the responses are cut")
    assert "--set rollout.max_response_tokens=128" in sentence  # twice the preset's 64


def test_malformed_responses_suggest_fine_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    babbling = replace(SEEN, well_formed=0.1, num_differing=0)
    assert "fine-tune first, with a table [policy.fine_tuning]" in advice(babbling, of())
    tuned = of(policy__fine_tuning={})
    assert "the fine-tuning is still to come" in advice(babbling, tuned, is_start=False)
    assert "after fine-tuning: raise policy.fine_tuning.steps" in advice(babbling, tuned)
    monkeypatch.setattr(Sokoban, "demonstrator", "")
    assert "has no demonstrator" in advice(babbling, of())


def test_a_program_is_advised_about_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sokoban, "plays", "mine:play")
    sentence = advice(replace(SEEN, well_formed=0.1), of())
    assert "have the program say more plainly" in sentence
    assert "docs/programs.md" in sentence


def test_groups_that_fare_alike_teach_nothing() -> None:
    alike = replace(SEEN, num_differing=0)
    assert "temperature" not in advice(replace(alike, success=0.0), of())
    assert "raise rollout.temperature (now 1)" in advice(alike, of())
    assert "take a harder one" in advice(replace(alike, success=1.0), of())


def test_a_policy_plays_and_is_timed(model: Path) -> None:
    trial = play_trial(of(model), str(model), 8)
    assert (trial.num_episodes, trial.num_groups, trial.num_failed) == (8, 2, 0)
    assert 8 <= trial.num_responses <= 40
    assert trial.success == trial.well_formed == 0, "its weights are random"
    assert trial.tokens_s > 0
    assert describe(trial, of(model), "it")[0].startswith("it played 8 episodes in ")


def test_run_time_is_arithmetic() -> None:
    """Two rollouts of 4 x 8 episodes, and two panels of 28, of half a second each: 60 s."""
    evaluated = {"evaluation__num_prompts": 28, "evaluation__every": 2}
    config = of(iterations=2, rollout__num_groups=4, rollout__group_size=8, **evaluated)
    assert "about 1.0 min of rollouts" in describe(SEEN, config, "it")[-1]


def test_embedded_policy_plays_once_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--play needs the embedded policy"):
        show_trial(preset("smoke"), 4, Store(str(tmp_path / "store")))


def test_model_before_fine_tuning_plays_unchanged(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_trial(of(model, policy__fine_tuning={}), 4, Store(str(tmp_path / "store")))
    out = " ".join(capsys.readouterr().out.split())
    assert f"{model}, not fine-tuned yet, played 4 episodes" in out
    assert "advice: only 0% of the responses are well-formed; the fine-tuning is still to come" in out


ASKING_TOO_MUCH = """
import json, os, urllib.error, urllib.request
body = {"model": "policy", "messages": [{"role": "user", "content": "hello"}], "n": 2}
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
try:
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers))
except urllib.error.HTTPError:
    pass
"""


@pytest.mark.ci
def test_refused_requests_shown_before_failure(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.py").write_text(ASKING_TOO_MUCH)
    (tmp_path / "tasks.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    program = {"type": "program", "command": [sys.executable, "agent.py"], "tasks": "tasks.jsonl"}
    config = of(model, environment=program, agent__max_actions_per_turn=1, agent__max_turns=1)
    with pytest.raises(EnvironmentFault, match="requests were refused"):
        show_trial(config, 2, Store(str(tmp_path / "store")))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("refused: ")]
    assert [line.partition(" (task {")[0] for line in lines] == ["refused: g0000-0", "refused: g0001-0"]
    reason = "request 1, POST /v1/chat/completions, field n: n is 2. Input should be 1."
    body = '{"model": "policy", "messages": [{"role": "user", "content": "hello"}], "n": 2}'
    assert all(line.endswith(f"{reason} It sent {body}") for line in lines)
