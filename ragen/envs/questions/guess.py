"""Settings for a file of questions, guessed from the names of its columns and from its first rows."""

from collections.abc import Iterable, Sequence

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.questions.environment import QuestionsSettings
from starpo.ragen.envs.questions.question import Columns, question_of
from starpo.ragen.envs.sources import Row, file_digest, read_rows

_NAMES = {
    "question": ("question", "query", "prompt", "problem", "input", "instruction", "text"),
    "answer": ("answer", "answers", "answerKey", "final_answer", "target", "label", "solution", "response", "output"),
    "choices": ("choices", "options"),
    "image": ("image", "images", "picture"),
}
"""Column -> names under which data sets have it, the likeliest first."""
_NUM_ROWS = 100


def guess_settings(path: str, test: str = "") -> QuestionsSettings:
    """Return settings for a file to train on and one to evaluate on, of the same columns.

    Args:
        path: As `QuestionsSettings.path`.
        test: As `QuestionsSettings.test`.

    Raises:
        ConfigError: If the columns cannot be told by their names.
        EnvironmentFault: If a file cannot be read, or no row can be used.
    """
    try:
        digest = file_digest(path)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    rows = read_rows(path, digest, lambda row: "", should_warn=False)[:_NUM_ROWS]
    columns = guess_columns(rows, path)
    return QuestionsSettings(path=path, test=test, columns=columns, scoring=guess_scoring(rows, columns))


def guess_columns(rows: Sequence[Row], path: str) -> Columns:
    """Return the columns of a file by their names.

    Raises:
        ConfigError: If there is none for the question or for the answer.
    """
    present = {name.lower(): name for row in rows for name in row}
    named = {column: _first(present, names) for column, names in _NAMES.items()}
    for column in ("question", "answer"):
        if named[column] is None:
            raise ConfigError(
                f"{path} has the columns {', '.join(map(repr, present.values())) or 'none'}, none of which is known as "
                f"the {column}'s ({', '.join(_NAMES[column])}): rename it, or write the settings by hand with "
                f"environment.columns.{column} (docs/questions.md)"
            )
    return Columns(**{column: name for column, name in named.items() if name is not None})


def guess_scoring(rows: Sequence[Row], columns: Columns) -> str:
    """Return 'choice' or 'number' if all rows that can be used fit it, otherwise 'text'."""
    scorings = [*(["choice"] if columns.choices in {name for row in rows for name in row} else []), "number"]
    for scoring in scorings:
        if sum(_fits(row, columns, scoring) for row in rows) > len(rows) / 2:
            return scoring
    return "text"


def _fits(row: Row, columns: Columns, scoring: str) -> bool:
    try:
        question = question_of(row, columns, scoring)
    except ValueError:
        return False
    return scoring == "choice" or all(_ends_in_number(answer) for answer in question.answers)


def _ends_in_number(answer: str) -> bool:
    words = answer.replace(",", "").split()
    return len(words) == 1 or (bool(words) and words[-2] == "####")


def _first(present: dict[str, str], names: Iterable[str]) -> str | None:
    return next((present[name.lower()] for name in names if name.lower() in present), None)
