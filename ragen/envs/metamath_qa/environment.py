"""MetaMathQA (RAGEN-2, environments): a question and several tries at its answer, each worth half as much as the last.

seed -> question (generated, or from the user's file)
"""

import random
from collections.abc import Mapping
from hashlib import blake2b
from typing import ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.base import Environment, EnvironmentSettings, Info
from starpo.ragen.envs.grammar import FreeText, Grammar
from starpo.ragen.envs.metamath_qa.questions import MathQuestion, normalised, stored_questions, sum_in_words
from starpo.ragen.envs.sources import kept_digest

_GRAMMAR = FreeText("An action is your answer and nothing else, for example: 12", max_chars=200)
_AGAIN = "Incorrect. Please think again."


class MetaMathQASettings(EnvironmentSettings):
    """Source of the questions and number of tries."""

    type: Literal["metamath_qa"] = "metamath_qa"
    path: str = ""
    """File of questions in MetaMathQA's format: a JSON list of objects, or one object per line, with the fields
    `query` and `response`. "": generate word problems."""
    digest: str = Field("", pattern="^([0-9a-f]{16})?$")
    """Digest of the file's content; "": filled in from the current file."""
    max_tries: int = Field(5, ge=1, le=32)
    """Answers per episode."""
    max_steps: int = Field(2, ge=1, le=2)
    """Maximum number of operations of a generated word problem. 2: one or two with equal probability."""
    max_number: int = Field(9, ge=2, le=1000)
    """Largest number in the text of a generated word problem."""

    files: ClassVar[Mapping[str, str]] = {"path": "digest"}

    @field_validator("digest")
    @classmethod
    def _of_the_file(cls, digest: str, info: ValidationInfo) -> str:
        return kept_digest(info.data.get("path", ""), digest)


class MetaMathQA(Environment[MetaMathQASettings]):
    """Environment with one question per episode, until it is answered correctly or the tries are used up."""

    settings_type = MetaMathQASettings
    demonstrator: ClassVar[str] = "starpo.ragen.envs.metamath_qa.demonstrations:demonstrate"

    def __init__(self, settings: MetaMathQASettings) -> None:
        super().__init__(settings)
        self._question: MathQuestion | None = None
        self._tried: tuple[str, ...] = ()

    @property
    def question(self) -> MathQuestion:
        """Question of the current episode, with its answer."""
        if self._question is None:
            raise EnvironmentFault("metamath_qa: there is no question before the first reset; call reset")
        return self._question

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        """Draw a question.

        Raises:
            EnvironmentFault: If the settings name a file that cannot be read or has changed.
        """
        settings, rng = self.settings, python_random(seed, "metamath qa")
        if settings.path:
            self._question = rng.choice(stored_questions(settings.path, settings.digest))
        else:
            self._question = sum_in_words(rng.randint(1, settings.max_steps), settings.max_number, rng)
        self._tried = ()
        return self.render(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Answer the question. The k-th try, counted from 0, pays 1/2^k if it is right; a wrong answer pays nothing."""
        question = self.question
        if self.is_over:
            raise EnvironmentFault("metamath_qa: the episode has ended; call reset")
        if _GRAMMAR.read(action) != action:
            raise EnvironmentFault(f"metamath_qa: {action!r} is not an answer; expected up to 200 characters of text")
        self._tried = (*self._tried, action)
        reward = 0.5 ** (len(self._tried) - 1) if normalised(action) == normalised(question.answer) else 0.0
        info = {"effective": True, "is_success": self.is_success, "tries": len(self._tried)}
        return self.render(), reward, self.is_over, False, info

    @property
    def actions(self) -> tuple[str, ...]:
        """Empty: an answer is any text."""
        return ()

    @property
    def grammar(self) -> Grammar:
        """Any text of up to 200 characters."""
        return _GRAMMAR

    def random_action(self, rng: random.Random) -> str:
        """Return a random integer."""
        return str(rng.randint(0, 2 * self.settings.max_number))

    @property
    def is_success(self) -> bool:
        """Whether the last answer was right."""
        return bool(self._tried) and normalised(self._tried[-1]) == normalised(self.question.answer)

    @property
    def is_over(self) -> bool:
        """Whether the question was answered correctly or all tries are used up."""
        return self.is_success or len(self._tried) == self.settings.max_tries

    def rules(self) -> str:
        """Return the task description."""
        tries = self.settings.max_tries
        attempts = "You have one attempt. A correct answer earns 1."
        if tries > 1:
            attempts = (
                f"You have {tries} attempts. A correct first attempt earns 1; each later attempt is worth half the "
                "previous one."
            )
        return f"Answer the question with a number or a short expression, and nothing else.\n{attempts}"

    def state_digest(self) -> str:
        """Return a digest of the question, its answer, and the tries."""
        state = (self.question.text, self.question.answer, *self._tried)
        return blake2b("\0".join(state).encode(errors="surrogatepass"), digest_size=8).hexdigest()

    def render(self) -> str:
        """Return the question; after an answer, also all answers so far and whether the last one was right."""
        if not self._tried:
            return self.question.text
        tried = ", ".join(" ".join(answer.split()) for answer in self._tried)
        return f"{self.question.text}\nTried: {tried}\n{'Correct!' if self.is_success else _AGAIN}"
