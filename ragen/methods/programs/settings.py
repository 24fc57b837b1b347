"""Settings of the environment 'program'."""

from typing import Literal

from pydantic import Field

from starpo.ragen.envs.base import EnvironmentSettings

MODEL = "policy"
"""Name under which the endpoint serves the policy."""


class ProgramSettings(EnvironmentSettings):
    """Episodes are played by a program."""

    type: Literal["program"] = "program"
    command: list[str] = Field(default_factory=list)
    tasks: str = ""
    time_limit_s: float = 60.0
    max_output_bytes: int = 1 << 20
    max_calls: int = Field(50, ge=1)
