"""Tasks of reasoning-gym: a question, and an answer that is scored from 0 to 1.

A question is a function of the task, its configuration, `data_seed` and its number, so it is the same wherever the same
version of the package is. An environment seed chooses a number.

Some of the package's scorers carry an answer out as Python, and an answer is a model's: their tasks are refused, unless
the settings want them all the same.
"""

import ast
import inspect
import random
import textwrap
from typing import Any, ClassVar, Literal

from pydantic import Field

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.core.visible import quoted
from starpo.ragen.envs.grammar import FreeText
from starpo.ragen.envs.suites.suite import Outcome, Suite, SuiteSettings, digest_of, missing

_EVALUATES = frozenset(["eval", "exec", "compile", "parse_expr", "sympify"])
"""Functions that carry out text; sympy's hand it to Python's own."""


class ReasoningGymSettings(SuiteSettings):
    """Which task, how hard, how many questions, and how often one may be answered."""

    type: Literal["reasoning_gym"] = "reasoning_gym"
    task: str = Field("chain_sum", min_length=1, max_length=400)
    """Name of a data set of reasoning-gym, such as `chain_sum`. Its configuration goes into `config`."""
    size: int = Field(100_000, ge=1, le=2**31)
    """How many questions there are; they are made one by one when they are asked."""
    data_seed: int = Field(0, ge=0, le=2**31)
    """Seed of the data set."""
    num_tries: int = Field(1, ge=1, le=100)
    """Answers that may be given to a question, until one scores 1. What an answer scored is told."""
    max_answer_chars: int = Field(400, ge=1, le=20_000)
    """A longer answer is none."""
    should_evaluate_answers: bool = Field(False, exclude_if=lambda evaluates: not evaluates)
    """Some tasks (countdown, puzzle24, n_queens, spiral_matrix and others) are scored by carrying out the answer as
    Python, so that whoever answers can do all that a program can, and may take as long as it likes. False: these tasks
    are refused. True: they are played, on a machine that has nothing to lose."""


class ReasoningGymTask(Suite[ReasoningGymSettings]):
    """One episode is one question."""

    settings_type = ReasoningGymSettings
    name: ClassVar[str] = "reasoning_gym"
    demonstrator: ClassVar[str] = "starpo.ragen.envs.suites.demonstrations:demonstrate"

    def __init__(self, settings: ReasoningGymSettings) -> None:
        super().__init__(settings)
        self._data = _data_of(settings)
        self._item: dict[str, Any] = {}
        self._num_answers = 0

    @property
    def grammar(self) -> FreeText:
        """One answer."""
        return FreeText("Your action is the answer to the question, and nothing else.", self.settings.max_answer_chars)

    @property
    def item(self) -> dict[str, Any]:
        """The present question with its answer, as the package made it."""
        assert self.now
        return self._item

    def answer_of(self, number: int) -> str:
        """The stored answer to another question."""
        return str(self._data[number % self.settings.size]["answer"])

    def begin(self, seed: int, dynamics_seed: int) -> str:
        """Ask a question."""
        self._item = self._data[derive_seed(seed, "reasoning-gym") % self.settings.size]
        self._num_answers = 0
        return str(self._item["question"]).strip()

    def origin(self, seed: int) -> str:
        """The question and its answer, whatever its number."""
        return digest_of([self._item["question"], self._item["answer"]])

    def take(self, action: str) -> Outcome:
        """Score an answer: its reward is the score. A score of 1 is success."""
        self._num_answers += 1
        score = self._score(action)
        left = self.settings.num_tries - self._num_answers
        told = f"{str(self._item['question']).strip()}\nYour answer {action} scores {score:g}."
        if score < 1.0 and left:
            told += f" You may answer {left} more {'time' if left == 1 else 'times'}."
        return Outcome(told, score, is_over=score >= 1.0 or not left, is_success=score >= 1.0)

    def _score(self, answer: str) -> float:
        try:
            return float(self._data.score_answer(answer, self._item))
        except (Exception, SystemExit):  # scorers raise at what they cannot read, and `exit()` may be evaluated: wrong
            return 0.0

    def random_action(self, rng: random.Random) -> str:
        """The answer to another question, or something else where that is no answer in this grammar."""
        return self.grammar.read(self.answer_of(rng.randrange(self.settings.size))) or "0"

    def rules(self) -> str:
        """How answers are scored, after what the settings tell of the task."""
        settings = self.settings
        tries = "once" if settings.num_tries == 1 else f"up to {settings.num_tries} times"
        scored = f"You are asked a question and may answer it {tries}. An answer scores from 0 to 1; 1 is right."
        return f"{settings.about}\n{scored}" if settings.about else scored


def _data_of(settings: ReasoningGymSettings) -> Any:
    """The data set.

    Raises:
        ConfigError: If there is no such task, or not with this configuration; or if its scorer carries out answers, and
            the settings do not want that.
        MissingPackageError: If reasoning-gym is not installed.
    """
    try:
        import reasoning_gym
    except ImportError as error:
        raise missing("reasoning_gym", error) from error
    names = sorted(reasoning_gym.factory.DATASETS)
    if settings.task not in names:
        raise ConfigError(f"reasoning_gym has no task {quoted(settings.task)}; it has {', '.join(names)}")
    chosen = {"size": settings.size, "seed": settings.data_seed}
    try:
        data = reasoning_gym.create_dataset(settings.task, **settings.config, **chosen)
    except (TypeError, ValueError, AssertionError) as error:
        raise ConfigError(
            f"reasoning_gym/{settings.task} cannot be made with config = {settings.config}: {error}"
        ) from error
    if not settings.should_evaluate_answers and (how := _evaluates(data.score_answer)):
        raise ConfigError(
            f"reasoning_gym/{settings.task} scores an answer by carrying it out as Python ({how}), so a model that "
            "answers could do all that a program can; play another task, or set should_evaluate_answers = true on a "
            "machine that has nothing to lose"
        )
    return data


def _evaluates(scorer: Any) -> str:
    """With which function a scorer carries out its argument `answer`, such as eval; "": with none."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(scorer)))):
        if isinstance(node, ast.Call) and (name := ast.unparse(node.func).rpartition(".")[2]) in _EVALUATES:
            said = (part for given in node.args for part in ast.walk(given))
            if any(isinstance(part, ast.Name) and part.id == "answer" for part in said):
                return name
    return ""
