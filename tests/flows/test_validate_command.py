"""`starpo validate`: prompts counted with the policy's tokenizer, and what is out of place with a pretrained model."""

from pathlib import Path

import pytest

from starpo.flows.cli.train import train
from starpo.flows.cli.validate import validate
from starpo.ragen.agents.policy.save import save_policy
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.core.errors import ConfigError


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model too large to be an exported embedded policy: 20.1 million parameters in its feed-forward layers."""
    folder, tokenizer = tmp_path_factory.mktemp("model"), make_tokenizer()
    sizes = TinyPolicy(hidden_size=512, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=13_000)
    save_policy(make_model(sizes, tokenizer), tokenizer, folder)
    return folder


def test_validate_prints_lengths(capsys: pytest.CaptureFixture[str]) -> None:
    validate("smoke")
    first, lengths = capsys.readouterr().out.splitlines()
    assert first == "smoke: valid; 2 iterations of sokoban. --settings shows them all."
    assert lengths == (
        "environment: first prompts of 24 tokens; with 1 response of 64 at most 88, where 256 are allowed; the model "
        "has 2,048 positions"
    )


@pytest.mark.ci
def test_embedded_preset_with_pretrained_model(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'extends = ["sokoban"]\n[policy]\ntype = "pretrained"\nname_or_path = "{model}"\n')
    validate(str(file))
    lines = capsys.readouterr().out.splitlines()
    prompt, optimiser = (line for line in lines if line.startswith("warning: "))
    assert "--set agent.prompt=full --set rollout.max_context_tokens=" in prompt
    assert "'muon' at matrix_learning_rate = 0.005" in optimiser


@pytest.mark.ci
def test_model_that_run_would_download(capsys: pytest.CaptureFixture[str]) -> None:
    validate("sokoban-paper")
    assert "prompts: not counted, as the model is not on this machine" in capsys.readouterr().out


def test_training_refused_before_any_start() -> None:
    with pytest.raises(ConfigError, match=r"^smoke: environment: first prompts of 24 tokens and"):
        train("smoke", ["rollout.max_context_tokens=72"])


@pytest.mark.ci
def test_validate_says_whether_tools_are_possible(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tasks.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(9)))
    file = tmp_path / "mine.toml"
    file.write_text(
        f'environment = {{type = "program", command = ["true"], tasks = "{tmp_path}/tasks.jsonl"}}\n'
        "evaluation = {num_prompts = 2}\nrollout = {max_context_tokens = 2048}\n"
        f'policy = {{type = "pretrained", name_or_path = "{model}"}}\n'
    )
    validate(str(file))
    problem = "tools: none can be declared. For a program that calls some, set agent.chat_template = 'hermes' (or"
    assert problem in capsys.readouterr().out
    file.write_text(f'{file.read_text()}agent = {{chat_template = "xml"}}\n')
    validate(str(file))
    assert "tools: the chat template declares them; calls are read in the form 'xml'" in capsys.readouterr().out
