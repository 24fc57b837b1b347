"""Documents and questions, from a synthetic world or user files, with an index over the documents."""

from dataclasses import dataclass
from functools import lru_cache

from starpo.ragen.envs.search_qa.index import Index
from starpo.ragen.envs.search_qa.world import Document, Question, make_world
from starpo.ragen.envs.sources import Row, read_rows


@dataclass(frozen=True)
class Library:
    """Documents, questions, and the index that finds the documents."""

    documents: tuple[Document, ...]
    questions: tuple[Question, ...]
    index: Index

    def search(self, query: str, limit: int) -> list[Document]:
        """Return the best documents, best first."""
        return [self.documents[place] for place in self.index.search(query, limit)]


@lru_cache(4)
def made_up(num_people: int, hops: tuple[int, ...], seed: int) -> Library:
    """Make a library about fictional people and places.

    Raises:
        MissingPackageError: If bm25s is not installed.
    """
    documents, questions = make_world(num_people, hops, seed)
    return _library(documents, questions)


@lru_cache(2)
def stored(documents: str, documents_digest: str, questions: str, questions_digest: str) -> Library:
    """Load a user's library: documents with `title` and `text`, questions with `question` and `answers`.

    Raises:
        EnvironmentFault: See `read_rows`.
        MissingPackageError: If bm25s is not installed.
    """
    document_rows = read_rows(documents, documents_digest, _fault_of_document)
    question_rows = read_rows(questions, questions_digest, _fault_of_question)
    return _library(
        tuple(Document(" ".join(row["title"].split()), row["text"].strip()) for row in document_rows),
        tuple(Question(row["question"].strip(), tuple(row["answers"])) for row in question_rows),
    )


def _library(documents: tuple[Document, ...], questions: tuple[Question, ...]) -> Library:
    return Library(documents, questions, Index([f"{document.title} {document.text}" for document in documents]))


def _fault_of_document(row: Row) -> str:
    for name in ("title", "text"):
        if not isinstance(row.get(name), str) or not row[name].strip():
            return f"'{name}' is {'missing' if name not in row else 'no text'}"
    return ""


def _fault_of_question(row: Row) -> str:
    if not isinstance(row.get("question"), str) or not row["question"].strip():
        return f"'question' is {'missing' if 'question' not in row else 'no text'}"
    answers = row.get("answers")
    if not isinstance(answers, list) or not answers or not all(isinstance(a, str) and a.strip() for a in answers):
        return f"'answers' is {'missing' if answers is None else 'no list of texts'}"
    return ""
