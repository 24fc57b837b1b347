"""`starpo new experiment`: what it writes validates, and follows from model, environment and machine."""

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from starpo.flows.api import experiment as experiments
from starpo.flows.api.experiment import plan_experiment
from starpo.flows.cli.new import experiment
from starpo.flows.presets import preset
from starpo.ragen.advice import advise
from starpo.ragen.agents.policy.save import save_policy
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.context_fit import context_fits
from starpo.ragen.core.errors import ConfigError, StarPOError
from starpo.ragen.envs.sokoban.environment import Sokoban
from starpo.ragen.readiness import obstacles
from starpo.ragen.sizing.device import Machine

GIB = 2**30


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, tokenizer = tmp_path_factory.mktemp("models") / "Small-1.5", make_tokenizer()
    sizes = TinyPolicy(hidden_size=32, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=32)
    folder.mkdir()
    save_policy(make_model(sizes, tokenizer), tokenizer, folder)
    return folder


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, Machine(16 * GIB, 2, is_cpu=True))


def on(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    monkeypatch.setattr(experiments, "this_machine", lambda: machine)
    monkeypatch.setattr(experiments, "host_memory", lambda: 16.0 * GIB)


def with_config(model: Path, folder: Path, **changes: Any) -> Path:
    copied = Path(shutil.copytree(model, folder / "changed"))
    settings = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**settings, **changes}))
    return copied


def written(model: Path, environment: str) -> dict[str, Any]:
    return tomllib.loads(plan_experiment(str(model), environment, "mine.toml").text)


@pytest.mark.ci
@pytest.mark.parametrize("environment", ["Bandit", "sokoban", "FrozenLakeNoSlip", "Rubik", "SearchQATools"])
def test_written_experiment_validates(
    model: Path, environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    experiment(str(model), environment, None)
    (path,) = tmp_path.iterdir()
    assert path.name == f"{environment.lower()}-small-1.5.toml"
    assert capsys.readouterr().out.splitlines()[0] == f"wrote {path.name}"
    config = preset(path.name)
    assert (obstacles(config), advise(config, context_fits(config))) == ([], [])
    assert config.agent.prompt == "full"
    for line in path.read_text().splitlines():
        assert not line.endswith(("# ", "#")), "a comment that says nothing"


def test_the_choices_of_a_bandit(model: Path) -> None:
    settings = written(model, "bandit")
    assert settings["extends"] == ["pretrained"]
    assert settings["agent"] == {"prompt": "full", "max_turns": 1, "max_actions": 1, "max_actions_per_turn": 1}
    tuning = settings["policy"]["fine_tuning"]
    assert tuning["demonstration_turns"] == tuning["steps"] * tuning["batch_size"]
    config = preset("sokoban-smollm2")  # all weights, by the same recipe
    assert settings["update"]["optimiser"]["learning_rate"] == config.update.optimiser.learning_rate
    (fit,) = context_fits(experiments._load(plan_experiment(str(model), "bandit", "mine.toml").text))
    limit = settings["rollout"]["max_context_tokens"]
    assert limit - 64 < fit.num_needed <= limit
    assert limit % 64 == 0


def test_no_demonstrator_no_fine_tuning(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sokoban, "demonstrator", "")
    made = plan_experiment(str(model), "sokoban", "mine.toml")
    assert made.notes == ("'sokoban' has no demonstrator, so there is no fine-tuning",)
    settings = tomllib.loads(made.text)
    assert "fine_tuning" not in settings["policy"]
    assert settings["rollout"]["max_response_tokens"] == 256
    assert obstacles(experiments._load(made.text)) == []


def test_short_context_model_gets_a_window(model: Path, tmp_path: Path) -> None:
    settings = written(with_config(model, tmp_path, max_position_embeddings=1100), "sokoban")
    assert settings["agent"]["context"] == "window"
    assert settings["rollout"]["max_context_tokens"] <= 1100
    config = experiments._load(plan_experiment(str(tmp_path / "changed"), "sokoban", "mine.toml").text)
    assert (obstacles(config), advise(config, context_fits(config))) == ([], [])


def test_context_shorter_than_prompt_one_message(model: Path, tmp_path: Path) -> None:
    folder = with_config(model, tmp_path, max_position_embeddings=64)
    with pytest.raises(ConfigError, match=r"do not fit into the 64 positions of the model: take a model"):
        experiment(str(folder), "sokoban", tmp_path / "mine.toml")
    assert not (tmp_path / "mine.toml").exists()


def test_missing_chat_template_one_message(model: Path, tmp_path: Path) -> None:
    folder = with_config(model, tmp_path)
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(StarPOError, match="chat template"):
        experiment(str(folder), "sokoban", tmp_path / "mine.toml")
    assert not (tmp_path / "mine.toml").exists()


def test_lora_if_all_weights_too_large(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """494M parameters take 4 + 8 + 4 x 3 bytes each for weights, moments and gradients, 11 GiB; adapters 7% of that."""
    sizes = {"hidden_size": 896, "num_hidden_layers": 24, "intermediate_size": 4864, "num_attention_heads": 14,
             "num_key_value_heads": 2, "vocab_size": 151_936}  # fmt: skip
    folder = with_config(model, tmp_path, **sizes)
    monkeypatch.setattr("starpo.ragen.agents.policy.folder._check_sizes", lambda *_: None)  # its weights are small
    on(monkeypatch, Machine(32 * GIB, 2, is_cpu=True))
    assert "lora" not in written(folder, "bandit")["update"]
    on(monkeypatch, Machine(16 * GIB, 2, is_cpu=True))
    settings = written(folder, "bandit")
    assert settings["update"]["lora"] == {"rank": 64, "alpha": 64.0}
    assert settings["policy"]["fine_tuning"]["lora"]["rank"] == 64
    assert settings["update"]["optimiser"]["learning_rate"] == 1e-4, "ten times the 1e-5 of all weights"


def test_gpu_machine_gets_gpu_sizes(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, Machine(80 * GIB, 1))
    settings = written(model, "bandit")
    assert settings["extends"] == ["pretrained", "gpu"]
    assert settings["policy"]["fine_tuning"]["batch_size"] == 32


def test_existing_file_is_not_overwritten(model: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("mine")
    with pytest.raises(ConfigError, match="already exists"):
        experiment(str(model), "bandit", tmp_path / "mine.toml")
    assert (tmp_path / "mine.toml").read_text() == "mine"


def test_an_unknown_environment_is_one_message(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'Bandid' is not an environment \(did you mean 'Bandit'"):
        experiment(str(model), "Bandid", tmp_path / "mine.toml")


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps({"problem": f"{n} + 1 = ?", "target": n + 1}) + "\n" for n in range(40)))
    return path


def test_questions_without_model_train_tiny_policy(questions: Path, tmp_path: Path) -> None:
    file = tmp_path / "sums.toml"
    experiment(questions=str(questions), output=file)
    settings = tomllib.loads(file.read_text())
    assert settings["extends"] == ["tiny"]
    assert settings["environment"]["columns"] == {"question": "problem", "answer": "target"}
    assert settings["environment"]["scoring"] == "number"
    assert settings["evaluation"]["num_prompts"] == 10, "a quarter of the 40 questions is held out"
    assert obstacles(experiments._load(file.read_text())) == []


@pytest.mark.parametrize("has_model", [False, True])
def test_next_command_plays_with_model(
    model: Path, questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], has_model: bool
) -> None:
    experiment(str(model) if has_model else None, questions=str(questions), output=tmp_path / "sums.toml")
    following = capsys.readouterr().out.partition("next: starpo validate")[2].partition(";")[0]
    assert following.startswith(f" {tmp_path}")
    assert (" --play 16" in following) == has_model, "a tiny policy is made by its warm start"


def test_questions_with_model_are_fine_tuned(model: Path, questions: Path, tmp_path: Path) -> None:
    file, test = tmp_path / "sums.toml", tmp_path / "test.jsonl"
    test.write_text('{"problem": "90 + 1 = ?", "target": 91}\n')
    experiment(str(model), questions=str(questions), test=str(test), output=file)
    settings = tomllib.loads(file.read_text())
    assert settings["policy"]["fine_tuning"]["demonstration_skill"] == 1.0
    assert settings["evaluation"]["num_prompts"] == 1
    assert obstacles(experiments._load(file.read_text())) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Name one: --environment NAME, or --questions FILE"),
        ({"environment": "Bandit"}, "--environment needs --model"),
        ({"model": "m", "environment": "Bandit", "test": "t"}, "--test goes with --questions alone"),
        ({"questions": "absent.jsonl"}, r"absent\.jsonl cannot be read"),
    ],
)
def test_questions_and_environment_exclude_each_other(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        experiment(**options)
