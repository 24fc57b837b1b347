"""Questions of the user's own: one per episode, answered in one or several tries.

A right answer pays its score, 1 unless a function gives less; with several tries each pays half as much as the one
before. Two files keep training and evaluation apart: panels are made of the questions of `test`, and a question that
stands in both files is never trained on.

    seed -> question of the training file        number of a row -> question of the test file
"""

import json
import logging
import random
import string
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, JsonValue, ValidationInfo, field_validator

from starpo.ragen.core.errors import EnvironmentFault, MissingPackageError
from starpo.ragen.core.identity import UNREADABLE, code_identity
from starpo.ragen.core.limits import CallLimits
from starpo.ragen.core.lookup import TARGET, checked_options, load, needs, resolve
from starpo.ragen.core.registry import SCORINGS
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.base import Environment, EnvironmentSettings, Info
from starpo.ragen.envs.grammar import FreeText, Grammar
from starpo.ragen.envs.questions.picture import pixels_of
from starpo.ragen.envs.questions.question import Columns, FileQuestion, load_questions
from starpo.ragen.envs.questions.scoring import COMPARISONS, Scored, same_choice
from starpo.ragen.envs.sources import kept_digest

_log = logging.getLogger(__name__)
_MAX_ROWS = 2**32
"""Seeds below it are numbers of rows; derived seeds are above it, but for one in two billion."""
_SHARE_OF_THE_LIMIT = 0.8
"""Of the time that a call of an environment may take, how much a scoring may: it must end before the call counts as
hung."""
_ANSWERS = {
    "number": "An action is the number that answers the question, and nothing else, such as: 12",
    "choice": "An action is the letter of the right choice, and nothing else, such as: B",
}
_ANSWER = "An action is your answer to the question, and nothing else."


class QuestionsSettings(EnvironmentSettings):
    """Files of questions, their columns, and how answers are scored."""

    type: Literal["questions"] = "questions"
    path: str = Field(min_length=1)
    """Questions to train on: a file of JSON lines, a JSON list or a Parquet file with a row per question; or a data set
    of Hugging Face: hf:NAME:SPLIT, hf:NAME:CONFIG:SPLIT, or hf:FOLDER as `save_to_disk` wrote it."""
    digest: str = Field("", pattern="^([0-9a-f]{16})?$")
    """Digest of its content; "": filled in from what is there."""
    test: str = ""
    """Questions to evaluate on, likewise. "": panels are drawn from `path`, and not trained on."""
    test_digest: str = Field("", pattern="^([0-9a-f]{16})?$")
    """Digest of its content; "": filled in from what is there."""
    columns: Columns = Columns()
    """Names of the columns, in both files."""
    scoring: str = "text"
    """'number': the last number of the answer. 'exact': the same characters. 'text': the same words, as SQuAD compares
    them. 'choice': the letter or the text of a choice. 'pattern': the right answer is a regular expression. 'judge': a
    language model's verdict. Or `module:function`, called with the answer and the row: a number from 0 to 1, or whether
    it is right."""
    scoring_digest: str = Field("", pattern="^([0-9a-f]{16})?$")
    """Digest of the code of that function, or of the judge; "": filled in from what is there."""
    scoring_options: dict[str, JsonValue] = Field(default_factory=dict)
    """Settings of 'judge': its server, model and prompt."""
    instructions: str = Field("", max_length=10_000)
    """Text before every question, in place of "Answer the question."."""
    max_tries: int = Field(1, ge=1, le=32)
    """Answers per episode; after a wrong one, the agent is told so."""
    max_answer_chars: int = Field(400, ge=1, le=20_000)
    """Maximum length of an answer."""
    image_size: int = Field(224, ge=32, le=2048)
    """Side, in pixels, of the white square into which a picture is fitted; families of models accept different ones."""

    files: ClassVar[Mapping[str, str]] = {"path": "digest", "test": "test_digest"}

    @field_validator("digest")
    @classmethod
    def _of_the_file(cls, digest: str, info: ValidationInfo) -> str:
        return kept_digest(info.data.get("path", ""), digest)

    @field_validator("test_digest")
    @classmethod
    def _of_the_test_file(cls, digest: str, info: ValidationInfo) -> str:
        return kept_digest(info.data.get("test", ""), digest)

    @field_validator("scoring")
    @classmethod
    def _is_known(cls, scoring: str) -> str:
        if scoring in {*COMPARISONS, "choice", *SCORINGS} or TARGET.fullmatch(scoring):
            return scoring
        known = ", ".join(map(repr, [*COMPARISONS, "choice", *SCORINGS]))
        raise ValueError(f"found {scoring!r}; expected {known}, or module:function of your own")

    @field_validator("scoring_digest")
    @classmethod
    def _of_the_function(cls, digest: str, info: ValidationInfo) -> str:
        scoring = SCORINGS.get(info.data.get("scoring", ""), info.data.get("scoring", ""))
        if digest or not TARGET.fullmatch(scoring):
            return digest
        identity = code_identity(scoring)
        if identity.startswith(UNREADABLE):
            raise ValueError(
                f"scoring '{scoring}': found no source of module '{scoring.partition(':')[0]}'; expected "
                "module:function of a file whose folder is in PYTHONPATH"
            )
        return identity[:16]

    @field_validator("scoring_options")
    @classmethod
    def _of_the_scoring(cls, options: dict[str, JsonValue], info: ValidationInfo) -> dict[str, Any]:
        scoring = info.data.get("scoring", "")
        if scoring in SCORINGS:
            return checked_options(SCORINGS, scoring, options)
        if options and scoring:
            raise ValueError(f"scoring '{scoring}' takes no options, found {', '.join(sorted(options))}")
        return {}

    def questions(self) -> tuple[FileQuestion, ...]:
        """Return the questions to train on.

        Raises:
            EnvironmentFault: If they cannot be read, have changed, or none can be used.
        """
        return load_questions(self.path, self.digest, self.columns, self.scoring)

    def test_questions(self) -> tuple[FileQuestion, ...]:
        """Return the questions to evaluate on, which may be those to train on.

        Raises:
            EnvironmentFault: See `questions`.
        """
        if not self.test:
            return self.questions()
        return load_questions(self.test, self.test_digest, self.columns, self.scoring)

    def panel_seeds(self, num_prompts: int, panel_seed: int) -> list[int] | None:
        """Return the numbers of rows of the test file, in an order drawn from the seed.

        Raises:
            EnvironmentFault: If it has fewer different questions than the panel.
        """
        questions = self.test_questions()
        rows = list({question: row for row, question in reversed(list(enumerate(questions)))}.values())
        if num_prompts > len(rows):
            raise EnvironmentFault(
                f"{self.test or self.path} has {len(rows)} different questions, fewer than a panel of {num_prompts}: "
                f"set evaluation.num_prompts (or --prompts) to {len(rows)} or less"
            )
        self._remark(questions)
        rows.sort()
        python_random(panel_seed, "panel of questions").shuffle(rows)
        return rows[:num_prompts]

    def _remark(self, questions: tuple[FileQuestion, ...]) -> None:
        """Log what makes the files unfit to learn from, or to tell what was learned."""
        if self.test and (shared := set(questions).intersection(self.questions())):
            _log.warning(
                "%d of %d questions of %s stand in %s too; those of the panel are not trained on",
                len(shared), len(questions), self.test, self.path,
            )  # fmt: skip
        if num_repeated := len(questions) - len(set(questions)):
            _log.warning(
                "%d of %d questions of %s repeat another one with its answer; the panel has each once",
                num_repeated, len(questions), self.test or self.path,
            )  # fmt: skip
        if len(questions) > 1 and len({question.answers for question in questions}) == 1:
            _log.warning("all %d questions of %s have the same answer", len(questions), self.test or self.path)


class Questions(Environment[QuestionsSettings]):
    """Environment with one question per episode, until it is answered correctly or the tries are used up."""

    settings_type = QuestionsSettings
    demonstrator: ClassVar[str] = "starpo.ragen.envs.questions.demonstrations:demonstrate"

    def __init__(self, settings: QuestionsSettings) -> None:
        super().__init__(settings)
        self._question: FileQuestion | None = None
        self._answers: tuple[str, ...] = ()
        self._score = 0.0

    @property
    def question(self) -> FileQuestion:
        """Question of the current episode, with its answers."""
        if self._question is None:
            raise EnvironmentFault("questions: there is no question before the first reset; call reset")
        return self._question

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        """Draw a question to train on; a seed below 2^32 is the number of a row of the test file.

        Raises:
            EnvironmentFault: If a file cannot be read or has changed.
            MissingPackageError: If the scoring asks a server, and its client is not installed.
        """
        if seed < _MAX_ROWS:
            questions = self.settings.test_questions()
            self._question = questions[seed % len(questions)]
        else:
            self._question = python_random(seed, "question").choice(self.settings.questions())
        if self._is_registered and "server" in needs(SCORINGS, self.settings.scoring) and find_spec("openai") is None:
            raise MissingPackageError(
                f"scoring '{self.settings.scoring}' asks a server and needs the package openai: pip install "
                "'starpo[openai]'"
            )
        self._answers, self._score = (), 0.0
        return self.render(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Answer the question. The k-th try, counted from 0, pays its score / 2^k.

        Raises:
            EnvironmentFault: If the action is no answer, the episode has ended, or the scoring function fails.
            EngineError: If a judge does not give a verdict. The state is then as before, and nothing is scored.
        """
        if self.is_over:
            raise EnvironmentFault("questions: the episode has ended; call reset")
        if self.grammar.read(action) != action:
            raise EnvironmentFault(
                f"questions: {action!r} is not an answer; expected up to {self.settings.max_answer_chars} characters"
            )
        self._score, facts = self._scored(action)
        self._answers = (*self._answers, action)
        reward = self._score * 0.5 ** (len(self._answers) - 1)
        info = {"effective": True, "is_success": self.is_success, "score": self._score, "tries": len(self._answers)}
        return self.render(), reward, self.is_over, False, info | facts

    def _scored(self, answer: str) -> tuple[float, Info]:
        """Return the score of an answer, and what a registered scoring says of it under its name."""
        scoring = self.settings.scoring
        if not self._is_registered:
            return score_of(scoring, answer, self.question), {}
        if not self.may_ask:
            return score_of("text", answer, self.question), {}
        limit_s = _SHARE_OF_THE_LIMIT * CallLimits.current().environment_s
        scored: Scored = load(SCORINGS, scoring)(self.question, answer, self.settings.scoring_options, limit_s)
        return _checked_score(scoring, scored.score), {scoring: dict(scored.facts)}

    @property
    def _is_registered(self) -> bool:
        """Whether the score is that of a registered scoring, such as a judge."""
        return self.settings.scoring in SCORINGS

    @property
    def max_concurrent_steps(self) -> int:
        """As many as the options of a scoring that asks a server allow requests at the same time."""
        number = self.settings.scoring_options.get("max_concurrent", 1) if self.may_ask else 1
        return number if isinstance(number, int) else 1

    @property
    def replay_fault(self) -> str:
        """Not empty if a judge scores."""
        if not self._is_registered:
            return ""
        return f"scoring '{self.settings.scoring}' may answer differently when it is asked again"

    @classmethod
    def remarks(cls, infos: Sequence[str]) -> list[str]:
        """Say how many verdicts of a judge took more than one request."""
        facts = [one for info in infos for name, one in json.loads(info).items() if name in SCORINGS]
        numbers = [one.get("requests", 1) for one in facts]
        num_repeated = sum(number > 1 for number in numbers)
        if not num_repeated:
            return []
        return [
            f"{num_repeated} of {len(numbers)} verdicts took more than one request ({sum(numbers)} in all): the server "
            "failed, or its answer held no verdict"
        ]

    @property
    def actions(self) -> tuple[str, ...]:
        """Empty: an answer is any text."""
        return ()

    @property
    def grammar(self) -> Grammar:
        """Any text up to the maximum length."""
        return FreeText(_ANSWERS.get(self.settings.scoring, _ANSWER), max_chars=self.settings.max_answer_chars)

    def random_action(self, rng: random.Random) -> str:
        """Return a random choice, or a right answer of a random question."""
        question = self.question
        if question.choices:
            return string.ascii_uppercase[rng.randrange(len(question.choices))]
        answer = rng.choice(rng.choice(self.settings.questions()).answers)
        return self.grammar.read(answer) or "?"

    @property
    def is_success(self) -> bool:
        """Whether the last answer has the score 1."""
        return self._score >= 1.0

    @property
    def is_over(self) -> bool:
        """Whether the question was answered correctly or all tries are used up."""
        return self.is_success or len(self._answers) == self.settings.max_tries

    def rules(self) -> str:
        """Return the task description."""
        lines = [self.settings.instructions or "Answer the question."]
        if self.settings.max_tries > 1:
            lines.append(
                f"You have {self.settings.max_tries} tries. A right answer is worth 1 at the first try, and half as "
                "much at each further one."
            )
        return "\n".join(lines)

    def state_digest(self) -> str:
        """Return a digest of the question, its right answers, the answers given, and the score that a judge gave."""
        picture = [blake2b(self.question.picture, digest_size=8).hexdigest()] if self.question.picture else []
        score = [f"scored {self._score}"] if self._is_registered and self._answers else []
        state = (self.question.text, *picture, *self.question.answers, "answered", *self._answers, *score)
        return blake2b("\0".join(state).encode(errors="surrogatepass"), digest_size=8).hexdigest()

    def render_rgb(self) -> np.ndarray:
        """Return the question's picture, uint8 [image_size, image_size, 3].

        Raises:
            EnvironmentFault: If it has none, or it cannot be decoded.
        """
        if not self.question.picture:
            raise EnvironmentFault("questions: there is no picture; name its column (environment.columns.image)")
        return pixels_of(self.question.picture, self.settings.image_size)

    def render(self) -> str:
        """Return the question; after an answer, also all answers so far and whether the last one was right."""
        if not self._answers:
            return self.question.text
        answers = "; ".join(" ".join(answer.split()) for answer in self._answers)
        return f"{self.question.text}\nAnswered: {answers}\n{'Correct.' if self.is_success else 'Incorrect.'}"


def score_of(scoring: str, answer: str, question: FileQuestion) -> float:
    """Return the score of an answer, from 0 to 1.

    Args:
        scoring: As in `QuestionsSettings.scoring`, but none that is registered.
        answer: The answer.
        question: The question.

    Raises:
        EnvironmentFault: If a function gives something else than a number from 0 to 1.
    """
    if scoring == "choice":
        return same_choice(answer, question.answers, question.choices)
    if scoring in COMPARISONS:
        return COMPARISONS[scoring](answer, question.answers)
    function: Callable[[str, Mapping[str, Any]], Any] = resolve(scoring)
    return _checked_score(scoring, function(answer, question.row))


def _checked_score(scoring: str, score: Any) -> float:
    if isinstance(score, int | float) and 0.0 <= score <= 1.0:
        return float(score)
    raise EnvironmentFault(f"{scoring} gave {score!r} for an answer; expected a number from 0 to 1, or True or False")
