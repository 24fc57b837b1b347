"""Settings of an environment whose episodes are played by a program.

Tasks and code are identified by digests that the settings keep, so that a change of either gives new keys.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.identity import code_identity
from starpo.ragen.core.lookup import TARGET
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.methods.programs.tasks import digest_of_all, read_tasks

Digest = Annotated[str, Field(pattern="^([0-9a-f]{16})?$")]

MODEL = "policy"
"""Name under which the endpoint serves the policy."""
PLACEHOLDERS = ("task", "base_url", "api_key", "model")
"""Names in braces that are replaced in the words of a command."""
PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
_SCRIPT = b"#!"


class ProgramSettings(EnvironmentSettings):
    """A program that plays one episode each time it is started, its tasks, its reward and its limits."""

    type: Literal["program"] = "program"
    command: str | list[str]
    """The program: a list of words, such as `["python", "agent.py"]`, without a shell; or `module:function`, called
    with the task in a process of its own. `{task}` (as JSON), `{base_url}`, `{api_key}` and `{model}` in a word are
    replaced."""
    tasks: str = Field(min_length=1)
    """One task per episode: a file of JSON lines, objects all; `module:attribute` of an iterable of dictionaries, or of
    a function that returns one; or `hf:NAME:SPLIT`, `hf:NAME:CONFIG:SPLIT` for a data set of Hugging Face."""
    reward: str | list[str] = "output"
    """'output': the last line of the program's output that is a JSON object, `{"reward": 1.0, "success": true}`.
    `module:function`, called with the transcript and the task. A list of words: a command that reads both as JSON."""
    time_limit_s: float = Field(600.0, gt=0, le=86_400)
    """Seconds that the program may take; the reward's command likewise."""
    max_output_bytes: int = Field(1_000_000, ge=1, le=1_000_000_000)
    """Maximum size of what the program writes to its standard output and standard error, together."""
    max_calls: int = Field(64, ge=1, le=10_000)
    """Maximum number of responses that the program may ask for."""
    sampling: Literal["run", "refuse"] = Field("run", exclude_if=lambda which: which == "run")
    """What becomes of sampling settings in the program's requests (temperature, top_p, penalties, seed). 'run': they
    have no effect, and are counted. 'refuse': a request that names others than the run's is refused."""
    variables: list[Annotated[str, Field(pattern=_VARIABLE)]] = Field(default_factory=list)
    """Names of environment variables that the program inherits, in addition to PATH, LANG and PYTHONPATH."""
    about: str = Field("", max_length=10_000)
    """Description of the task for readers of a run; the program has its own."""
    tasks_digest: Digest = ""
    """Digest of the tasks; empty: filled in from what is there now."""
    code_digest: Digest = ""
    """Digest of the code that `command` and `reward` name, as files or modules; empty: filled in from what is there
    now. What a file imports is not seen; what a module imports is."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @field_validator("command", "reward")
    @classmethod
    def _is_a_command(cls, value: str | list[str], info: ValidationInfo) -> str | list[str]:
        if isinstance(value, str):
            if TARGET.fullmatch(value) or (info.field_name == "reward" and value == "output"):
                return value
            others = "'output', " if info.field_name == "reward" else ""
            raise ValueError(
                f"found {value!r}; expected {others}module:function, or a list of words such as ['python', 'agent.py']"
            )
        if not value or not all(value):
            raise ValueError("it has no word, or an empty one; expected such as ['python', 'agent.py']")
        known = PLACEHOLDERS if info.field_name == "command" else ()
        placeholders = [name for word in value for name in PLACEHOLDER.findall(word)]
        if unknown := [name for name in placeholders if name not in known]:
            names = ", ".join(f"{{{name}}}" for name in known) or "none; it reads task and transcript as JSON"
            raise ValueError(f"{{{unknown[0]}}} is not a placeholder; known: {names}")
        return value

    @field_validator("tasks_digest")
    @classmethod
    def _of_the_tasks(cls, digest: str, info: ValidationInfo) -> str:
        try:
            return digest or (digest_of_all(read_tasks(info.data["tasks"])) if "tasks" in info.data else "")
        except EnvironmentFault as error:
            raise ValueError(str(error)) from error

    @field_validator("code_digest")
    @classmethod
    def _of_the_code(cls, digest: str, info: ValidationInfo) -> str:
        named = [info.data[name] for name in ("command", "reward") if name in info.data]
        return digest or code_digest(named)


def code_digest(named: list[str | list[str]]) -> str:
    """Return a digest of code: of the modules of functions, and of the files that commands name.

    The first word of a command counts if it is a script; a binary, such as an interpreter, does not.

    Returns:
        16 hexadecimal digits.
    """
    parts: list[list[str]] = []
    for one in named:
        if isinstance(one, list):
            files = [Path(word) for word in one]
            parts.append([_bytes_digest(path, is_program=at == 0) for at, path in enumerate(files)])
        else:
            parts.append([code_identity(one) if TARGET.fullmatch(one) else one])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _bytes_digest(path: Path, *, is_program: bool) -> str:
    """Return the digest of a file; empty if there is none, or if it is a binary to be started."""
    try:
        if not path.is_file():
            return ""
        content = path.read_bytes()
    except (OSError, ValueError):  # ValueError: a null byte
        return ""
    return "" if is_program and not content.startswith(_SCRIPT) else hashlib.sha256(content).hexdigest()
