"""Stored answers of external models, keyed by a digest of the question.

    question, as JSON -> digest -> <store>/answers/<2 digits>/<digest>.json, written once

Answers are not artifacts: no run names them, and garbage collection does not delete them. When any run asks the same
question again, the stored answer is used and no request is made.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from starpo.ragen.core.errors import ArtifactDamagedError, NotAskedError
from starpo.ragen.store.artifacts.keys import KEY_DIGITS, canonical_json
from starpo.ragen.store.remote.location import Location

FOLDER = "answers"


class Answers:
    """The answers in a store. Safe for concurrent use by threads and processes.

    Attributes:
        behind: Fallback for missing answers: the store that this one is a scratch copy of. If it is set, work is
            repeated for comparison, and no new question may be asked.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self.behind: Answers | None = None

    def get(self, question: Mapping[str, Any]) -> str | None:
        """Return the stored answer; None if the question was not asked yet and may be asked now.

        Args:
            question: Everything that an answer depends on, as JSON; without secrets, since it is stored as well.

        Raises:
            NotAskedError: If there is no answer, and questions may not be asked here.
            ArtifactDamagedError: If the file is not what was written.
            StoreError: If the store cannot be read.
        """
        path = _path(question)
        try:
            data = self._location.read(path)
        except FileNotFoundError:
            if self.behind is None:
                return None
            answer = self.behind.get(question)
            if answer is None:
                raise NotAskedError(
                    f"an answer that it needs is not in {self.behind._location.name} ({path}; answers are not copied "
                    "with a run), and a comparison asks no new questions"
                ) from None
            return answer
        try:
            stored = json.loads(data)
            answer = stored["answer"]
            is_whole = stored == _document(question, answer)
        except (ValueError, KeyError, TypeError):
            is_whole = False
        if not is_whole:
            raise ArtifactDamagedError(
                f"{self._location.name.rstrip('/')}/{path} is damaged: delete it, and the question is asked again"
            )
        return str(answer)

    def put(self, question: Mapping[str, Any], answer: str) -> None:
        """Store an answer; an existing one is kept.

        Raises:
            StoreError: If the store cannot be written.
        """
        self._location.create(_path(question), canonical_json(_document(question, answer)).encode())


def _document(question: Mapping[str, Any], answer: str) -> dict[str, Any]:
    """Return the stored document, with a digest that reveals damage."""
    content = {"question": dict(question), "answer": answer}
    return content | {"sha256": hashlib.sha256(canonical_json(content).encode()).hexdigest()}


def _path(question: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(canonical_json(question).encode()).hexdigest()[:KEY_DIGITS]
    return f"{FOLDER}/{digest[:2]}/{digest}.json"
