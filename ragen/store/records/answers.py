"""Answers that were bought once: what somebody outside said to a question, kept by a digest of the question.

    question, as JSON -> digest -> <store>/answers/<2 digits>/<digest>.json, written once

They are no artifacts: no run names them, and no cleaning deletes them. Whoever would ask the same question again, in
any run, finds the answer here and asks nobody.
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
    """The answers in a store. May be used by many threads and processes at once.

    Attributes:
        behind: Where else to look for an answer: the store that this one stands in front of. What is done again here is
            held against what is there, so nobody is asked for what that has not.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self.behind: Answers | None = None

    def get(self, question: Mapping[str, Any]) -> str | None:
        """What was answered; None: nobody was asked yet, and somebody may be.

        Args:
            question: All that an answer depends on, as JSON: no secrets, since it is stored too.

        Raises:
            NotAskedError: If there is no answer, and nobody is asked here.
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
                    f"an answer that it takes is not in {self.behind._location.name} ({path}; answers are not copied "
                    "with a run), and nobody is asked for a comparison"
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
                f"{self._location.name.rstrip('/')}/{path} is not what was written: delete it, and it is asked again"
            )
        return str(answer)

    def put(self, question: Mapping[str, Any], answer: str) -> None:
        """Keep an answer; where there is one already, that one stays.

        Raises:
            StoreError: If the store cannot be written.
        """
        self._location.create(_path(question), canonical_json(_document(question, answer)).encode())


def _document(question: Mapping[str, Any], answer: str) -> dict[str, Any]:
    """With a digest, by which damage shows."""
    content = {"question": dict(question), "answer": answer}
    return content | {"sha256": hashlib.sha256(canonical_json(content).encode()).hexdigest()}


def _path(question: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(canonical_json(question).encode()).hexdigest()[:KEY_DIGITS]
    return f"{FOLDER}/{digest[:2]}/{digest}.json"
