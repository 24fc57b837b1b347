"""Single-response tasks of verifiers: a task set's prompt, and the rewards that need no runtime.

The package is asynchronous and drives agents itself; here it only provides the tasks and scores the answers.
"""

import random
import re
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar, Literal

from pydantic import Field

from starpo.ragen.core.errors import ConfigError, EnvironmentFault
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs.grammar import FreeText
from starpo.ragen.envs.suites.bridge import finished
from starpo.ragen.envs.suites.suite import StepResult, Suite, SuiteSettings, missing, values_digest

_WORD = re.compile(r"\w+")


class VerifiersSettings(SuiteSettings):
    """The task set and the scoring of answers."""

    type: Literal["verifiers"] = "verifiers"
    task: str = Field(min_length=1, max_length=400)
    """Id of an installed task set; `config` is passed to its configuration."""
    max_tasks: int = Field(1000, ge=1)
    """Number of tasks to take, from the first."""
    max_answer_chars: int = Field(4000, ge=1, le=100_000)
    """Longer answers are rejected."""
    success_at: float = 1.0
    """An answer with a reward of at least this is a success."""
    timeout_s: float = Field(60.0, gt=0.0)
    """Timeout of scoring an answer, in seconds."""


class VerifiersTask(Suite[VerifiersSettings]):
    """Environment with one response to one task per episode."""

    settings_type = VerifiersSettings
    name: ClassVar[str] = "verifiers"

    def __init__(self, settings: VerifiersSettings) -> None:
        super().__init__(settings)
        self._tasks = _tasks_of(settings)
        self._task: Any = None

    @property
    def grammar(self) -> FreeText:
        """One answer, as free text."""
        return FreeText("Your action is the answer, and nothing else.", self.settings.max_answer_chars)

    @property
    def replay_fault(self) -> str:
        """Non-empty also if a judge scores the answers, or if reloading the task set gives different tasks."""
        return _fault_of(self.settings) or super().replay_fault

    def begin(self, seed: int, dynamics_seed: int) -> str:
        """See `Suite.begin`."""
        self._task = self._tasks[derive_seed(seed, "verifiers") % len(self._tasks)]
        data = self._task.data
        return "\n\n".join(filter(None, [data.system_prompt, data.prompt_text]))

    def origin(self, seed: int) -> str:
        """Return the identity of the task, regardless of its index; the seed if it cannot be replayed."""
        return super().origin(seed) if self.replay_fault else _identity(self._task)

    def take(self, action: str) -> StepResult:
        """Score the answer; the reward is the weighted sum of the task's rewards."""
        reward = finished(_score(self._task, action), self.settings.timeout_s)
        return StepResult(f"The answer scores {reward:g}.", reward, True, reward >= self.settings.success_at)

    def random_action(self, rng: random.Random) -> str:
        """Return a word of the task."""
        return rng.choice(_WORD.findall(self.render()) or ["0"])[: self.settings.max_answer_chars]


@lru_cache(maxsize=8)
def _tasks_of(settings: VerifiersSettings) -> tuple[Any, ...]:
    """Load the tasks, once per process.

    Raises:
        ConfigError: If there is no such task set, it is empty, or the configuration is invalid.
        MissingPackageError: If verifiers is not installed.
    """
    return _load(settings)


@lru_cache(maxsize=8)
def _fault_of(settings: VerifiersSettings) -> str:
    if any(task.plugged_judges() for task in _tasks_of(settings)[:1]):
        return "it is scored by a judge, which may change its mind"
    if list(map(_identity, _load(settings))) != list(map(_identity, _tasks_of(settings))):
        return "loading the task set again gives other tasks"
    return ""


def _load(settings: VerifiersSettings) -> tuple[Any, ...]:
    try:
        import verifiers.v1
        from verifiers.v1.utils.loaders import taskset_class
    except ImportError as error:
        raise missing("verifiers", error) from error
    try:
        made = taskset_class(settings.task)
        chosen = (
            verifiers.v1.utils.generic.concrete_type(made, verifiers.v1.TasksetConfig) or verifiers.v1.TasksetConfig
        )
        tasks = tuple(islice(made(chosen(id=settings.task, **settings.config)), settings.max_tasks))
    except (ImportError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"verifiers/{settings.task} cannot be loaded: {error}") from error
    if not tasks:
        raise ConfigError(f"verifiers/{settings.task} has no task with config = {settings.config}")
    return tasks


def _identity(task: Any) -> str:
    return values_digest([task.key])


async def _score(task: Any, answer: str) -> float:
    """Compute the reward of one response.

    Raises:
        EnvironmentFault: If none of the task's rewards can be computed without a runtime.
    """
    import verifiers.v1 as vf

    trace = vf.Trace(
        task=vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
    )
    messages = [vf.UserMessage(content=task.data.prompt_text), vf.AssistantMessage(content=answer)]
    trace.nodes = [
        vf.MessageNode(parent=number - 1 if number else None, message=message, sampled=bool(number))
        for number, message in enumerate(messages)
    ]
    await task.score(trace)
    if not trace.rewards:
        raise EnvironmentFault(
            f"verifiers: {type(task).__name__} has no reward that can be computed without a runtime; only tasks of one "
            "response that are scored by what it says can be played here"
        )
    return float(trace.reward)
