"""`starpo new`: working templates for a user's own environment, agent, prompt or experiment."""

import keyword
import os
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Literal

import typer

from starpo.flows.cli.commands import STYLE
from starpo.flows.cli.options import JsonOption
from starpo.flows.console.documents.settings import WrittenFiles
from starpo.flows.console.pages import write_page
from starpo.flows.console.terminal import print_json, write
from starpo.ragen.agents.prompting.full_prompt import FULL_TEMPLATE
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.registry import ENVIRONMENTS
from starpo.ragen.core.visible import quoted
from starpo.ragen.envs.data_sets import plain_name

app = typer.Typer(no_args_is_help=True, **STYLE)  # type: ignore[arg-type]
_NAME, _CLASS = "environment_name", "EnvironmentName"
"""Placeholders for the names in the templates."""
Framework = Literal["openai-agents", "pydantic-ai", "langgraph", "smolagents", "openai"]
_PACKAGES: Mapping[Framework, Mapping[str, str]] = {
    "openai-agents": {"openai-agents": "agents"},
    "pydantic-ai": {"'pydantic-ai-slim[openai]'": "pydantic_ai"},
    "langgraph": {"langgraph": "langgraph", "langchain-openai": "langchain_openai"},
    "smolagents": {"'smolagents[openai]'": "smolagents"},
    "openai": {"openai": "openai"},
}
"""Name for pip -> module of the packages that each needs."""
_LAST_WORDS = {"smolagents": '{"tool_calls": [{"name": "final_answer", "arguments": {"answer": "Done."}}]}'}
"""How a player ends, where it is not by words alone."""
_RECORD = (
    "starpo record demos --teacher tasks:teach --new-policy tiny --tasks tasks:TASKS --reward reward:score "
    "--num-tasks 800 --set environment.max_calls=8 -- agent:play"
)
_ELSEWHERE = "choose a folder that you may write to"
_NAMES, _FREE_TEXT = ("environment.py.txt", "test.py.txt"), ("free_text.py.txt", "free_text_test.py.txt")
"""Templates of an environment and its test: with names of actions, and with answers in words."""


@app.callback()
def new() -> None:
    """Write a working template for your own environment, agent, prompt or experiment."""


@app.command()
def agent(
    framework: Annotated[Framework, typer.Option("--framework", help="What the agent is written with.")],
    folder: Annotated[Path, typer.Option(help="Where the files go.")] = Path(),
    as_json: JsonOption = False,
) -> None:
    """Write an agent that calls tools, its tasks, its reward, and settings to train it (docs/tool-agents.md)."""
    files_of = {
        f"agents/{framework.replace('-', '_')}.py.txt": "agent.py",
        "agents/tasks.py.txt": "tasks.py",
        "agents/reward.py.txt": "reward.py",
        "agents/agent.toml.txt": "agent.toml",
    }
    paths = {template: folder / file for template, file in files_of.items()}
    for path in paths.values():
        _expect_new(path)
    for template, path in paths.items():
        text = _template(template)
        if template.endswith("tasks.py.txt"):
            text = text.replace('"Done."', _LAST_WORDS.get(framework, '"Done."'))
        write_page(path, text, _ELSEWHERE)
    missing = [name for name, module in _PACKAGES[framework].items() if find_spec(module) is None]
    notes = [f"pip install {' '.join(missing)}"] if missing else []
    steps = [f"cd {folder}; export PYTHONPATH=$PWD", _RECORD, "starpo train agent.toml --run stock"]
    _print_written([*paths.values()], notes, steps, as_json)


@app.command()
def environment(
    name: Annotated[str, typer.Argument(help="Name of the module, such as stairs.")],
    folder: Annotated[Path, typer.Option(help="Where the files go.")] = Path(),
    free_text: Annotated[bool, typer.Option("--free-text", help="Actions are answers in words.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write an environment, its test, and settings to train on it (docs/extend.md)."""
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower():
        raise ConfigError(f"{quoted(name)} cannot be a module: use lower-case letters, digits and _, such as stairs")
    taken = "a built-in environment" if name in ENVIRONMENTS else "a module that can be imported here"
    if name in ENVIRONMENTS or find_spec(name) is not None:
        raise ConfigError(f"'{name}' is already {taken}: choose another name")
    code, test = _FREE_TEXT if free_text else _NAMES
    files_of = {code: f"{name}.py", test: f"test_{name}.py", "settings.toml.txt": f"{name}.toml"}
    paths = {template: folder / file for template, file in files_of.items()}
    for path in paths.values():
        _expect_new(path)
    for template, path in paths.items():
        text = _template(template)
        write_page(path, text.replace(_NAME, name).replace(_CLASS, _class_name(name)), _ELSEWHERE)
    step = f"export PYTHONPATH={folder.resolve()}; pytest {paths[test]}; starpo train {paths['settings.toml.txt']}"
    _print_written([*paths.values()], [], [step], as_json)


@app.command()
def experiment(
    model: Annotated[
        str | None,
        typer.Option(
            "--model", help="As policy.name_or_path: a folder, or a name on the hub. Default: the tiny policy."
        ),
    ] = None,
    environment: Annotated[
        str | None, typer.Option("--environment", help="One of `starpo envs`, or module:attribute.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The file. Default: named after environment and model.")
    ] = None,
    questions: Annotated[
        str | None,
        typer.Option("--questions", help="A file of questions to train on: JSON lines, Parquet, or hf:NAME."),
    ] = None,
    test: Annotated[str, typer.Option("--test", help="A file of questions to evaluate on.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Write settings for a model, and an environment (docs/models.md) or questions of your own (docs/questions.md)."""
    from starpo.flows.api.experiment import plan_experiment, plan_questions

    if (environment is None) == (questions is None):
        raise ConfigError("what is it to be trained on? Name one: --environment NAME, or --questions FILE")
    if environment is not None and (model is None or test):
        raise ConfigError("--environment needs --model, and --test goes with --questions alone")
    path = output or Path(_file_name(environment or plain_name(questions or ""), model or "tiny"))
    _expect_new(path)
    if questions is not None:
        plan = plan_questions(questions, test, model, str(path))
    else:
        plan = plan_experiment(str(model), str(environment), str(path))
    write_page(path, plan.text, _ELSEWHERE)
    play = " --play 16" if model else ""  # the tiny policy is made by its warm start: nothing could play yet
    _print_written([path], plan.notes, [f"starpo validate {path}{play}; starpo train {path}"], as_json)


def _file_name(environment: str, model: str) -> str:
    """Return such as `bandit-smollm2.toml` for Bandit and models/smollm2."""
    names = environment.partition(":")[0], model.rstrip("/").rpartition("/")[2].rpartition(":")[2]
    plain = (re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") for name in names)
    return "-".join(plain).removesuffix(".gguf") + ".toml"


@app.command()
def prompt(
    file: Annotated[Path, typer.Argument(help="The new file; its name ends in .jinja.")],
    as_json: JsonOption = False,
) -> None:
    """Write the built-in prompt as a template to edit (docs/prompts.md)."""
    if file.suffix != ".jinja":
        raise ConfigError(f"'{file}' is not a template's name: expected one that ends in .jinja, such as mine.jinja")
    _expect_new(file)
    write_page(file, FULL_TEMPLATE, _ELSEWHERE)
    step = f"starpo train sokoban --set agent.prompt=template --set agent.prompt_template={file}"
    _print_written([file], [], [step], as_json)


def _print_written(files: Sequence[Path], notes: Sequence[str], steps: Sequence[str], as_json: bool) -> None:
    if as_json:
        print_json(WrittenFiles(files=[str(file) for file in files], notes=list(notes), next=list(steps)))
        return
    for file in files:
        write(f"wrote {file}")
    for note in notes:
        write(f"note: {note}")
    for label, step in zip_longest(["next: "], steps, fillvalue="      "):
        write(f"{label}{step}")


def _template(name: str) -> str:
    return (files(__package__) / "templates" / name).read_text(encoding="utf-8")


def _expect_new(path: Path) -> None:
    if os.access(path, os.F_OK):  # `exists` raises in a folder that may not be searched
        raise ConfigError(f"{path} already exists, and nothing was written: choose another name or folder")


def _class_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
