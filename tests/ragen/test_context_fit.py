"""What cannot fit into the context is told before any work."""

import json
import shutil
from pathlib import Path

import pytest

from starpo.flows.presets import preset
from starpo.ragen.agents.prompting.lengths import PromptLengths
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.context_fit import ContextFit, context_fits
from starpo.ragen.envs.sokoban.environment import Sokoban
from starpo.ragen.readiness import obstacles


def fit(*, turns: int = 3, response: int = 64, context: int = 1000, positions: int | None = 2048) -> ContextFit:
    """100 tokens of first prompt, 30 more a turn: three turns need 100 + 2 * (30 + 64) + 64 = 352."""
    lengths = PromptLengths(shortest=90, longest=100, later=30, num_states=4)
    rollout = RolloutConfig(max_response_tokens=response, max_context_tokens=context)
    return ContextFit("environment", "sokoban", lengths, AgentConfig(max_turns=turns), rollout, positions)


def test_fitting_context_has_no_misfit() -> None:
    assert (fit().misfit, fit().shortage, fit().num_needed) == (None, None, 352)
    assert fit(context=352).shortage is None
    assert fit(positions=352).misfit is None
    assert fit(positions=None).misfit is None


def test_program_turns_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fit(context=200).shortage is not None
    monkeypatch.setattr(Sokoban, "plays", "mine:play")
    assert fit(context=200).shortage is None


def test_context_shorter_than_prompt() -> None:
    misfit = fit(positions=80).misfit
    assert misfit is not None
    assert misfit.startswith(
        "environment: first prompts of 90 to 100 tokens and rollout.max_response_tokens = 64 do not"
    )
    assert "the 80 positions of the model: take a model with a longer context" in misfit
    misfit = fit(positions=130).misfit
    assert misfit is not None
    assert "set that to at most 30, or take a model" in misfit


def test_only_some_turns_fit() -> None:
    assert fit(context=300).misfit is None
    assert fit(context=300).shortage == (
        "environment: only 2 of 3 turns surely fit into rollout.max_context_tokens = 300; episodes that need more end "
        "as 'truncated': --set rollout.max_context_tokens=352"
    )


def test_episode_longer_than_model_positions() -> None:
    misfit = fit(positions=300).misfit
    assert misfit is not None
    assert "3 turns may need 352, but the model has 300 positions: set rollout.max_context_tokens = 300" in misfit
    assert fit(positions=300, context=300).misfit is None


def test_positions_are_those_of_the_folder(model: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(model, tmp_path / "short"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 80}))
    settings = preset("smoke", {"policy.type": "pretrained", "policy.name_or_path": str(folder)})
    assert [fitted.positions for fitted in context_fits(settings)] == [80]
    (obstacle,) = obstacles(settings)
    assert "do not fit into the 80 positions of the model: set that to at most 56" in obstacle


def test_parts_of_an_environment_are_named() -> None:
    lakes = {"type": "levels", "environment": {"type": "frozen_lake"}, "fields": ["size"], "values": [3, 4]}
    settings = preset("smoke", {"environment": lakes, "evaluation.variants": {}})
    assert [fitted.place for fitted in context_fits(settings)] == ["environment, size-3", "environment, size-4"]


def test_a_failing_environment_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no lake today")

    monkeypatch.setattr("starpo.ragen.context_fit.prompt_lengths", fail)
    (obstacle,) = obstacles(preset("smoke"))
    assert obstacle.startswith("environment: a first prompt cannot be made: OSError: no lake today")
