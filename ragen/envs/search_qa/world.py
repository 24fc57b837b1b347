"""A synthetic world: people and places, facts about them, documents with the facts, and one- and two-hop questions.

world seed -> people, places, facts -> documents, questions
"""

from collections.abc import Iterator
from dataclasses import dataclass

from starpo.ragen.core.seeding import python_random


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST_NAMES = _words("Ada Ben Cora Dan Eva Finn Gus Hal Ida Jon Kai Lea Max Nora Otto Pia")
LAST_NAMES = _words("Ash Birch Cole Dorn Elm Frost Gale Hart Ives Kern Lund Moss Nash Orr Penn Rowe")
PLACES = _words(
    "Aldern Borley Cresk Dunmore Eskby Farrow Glenholt Hexley Irden Jarrow Kelby Lorne Marley Norby Orwick Pelham "
    "Quorn Redmere Selby Thorne Ulsby Varnham Wexley Yarm"
)
RIVERS = _words("Arle Brue Cann Dove Esk Frome Gade Huble")
LANDS = _words("Norland Ostia Merania Weld Suria Tarn")
JOBS = _words("baker potter tailor doctor miller singer joiner farmer tanner weaver mason smith")


@dataclass(frozen=True)
class Relation:
    """One kind of fact.

    Attributes:
        sentence: Template of the document sentence, with `name` and `value`.
        question: Template of the question, with `name`.
        phrase: Template that refers to the value via `name`, if the value has its own document; "" if it has none.
    """

    sentence: str
    question: str
    phrase: str = ""


OF_PEOPLE: dict[str, Relation] = {
    "job": Relation("{name} is a {value}.", "What is the job of {name}?"),
    "birthplace": Relation("{name} was born in {value}.", "Where was {name} born?", "the birthplace of {name}"),
    "teacher": Relation("{name} learned from {value}.", "From whom did {name} learn?", "the teacher of {name}"),
}
OF_PLACES: dict[str, Relation] = {
    "river": Relation("{name} lies on the {value}.", "On which river lies {name}?"),
    "land": Relation("{name} belongs to {value}.", "To which land belongs {name}?"),
}
_OF_VALUES = {"birthplace": OF_PLACES, "teacher": OF_PEOPLE}


@dataclass(frozen=True)
class Document:
    """A document to be found."""

    title: str
    text: str


@dataclass(frozen=True)
class Question:
    """A question to be answered.

    Attributes:
        text: The question itself.
        answers: Right answers; any of them is accepted.
        way: In a synthetic world, titles of the documents that lead to the answer, in order.
        facts: In a synthetic world, the relevant sentence of each of these documents.
    """

    text: str
    answers: tuple[str, ...]
    way: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()


def make_world(num_people: int, hops: tuple[int, ...], seed: int) -> tuple[tuple[Document, ...], tuple[Question, ...]]:
    """Generate people and places, with a document for each.

    Args:
        num_people: At most 256, one per pair of first and last name. There are 24 places.
        hops: Hops of the questions: 1, 2, or both.
        seed: Seed of all facts.

    Returns:
        The documents, and every question of the requested kinds: per person five with two hops and three with one, per
        place two with one. Questions about a person's teacher whose answer is that person are omitted.
    """
    rng = python_random(seed, "search qa world")
    everybody = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]
    people = rng.sample(everybody, num_people)
    facts: dict[str, dict[str, str]] = {
        place: {"river": rng.choice(RIVERS), "land": rng.choice(LANDS)} for place in PLACES
    }
    for person in people:
        facts[person] = {
            "job": rng.choice(JOBS),
            "birthplace": rng.choice(PLACES),
            "teacher": rng.choice([other for other in people if other != person]),
        }
    documents = tuple(Document(name, " ".join(_sentences(name, values))) for name, values in facts.items())
    return documents, tuple(_questions(facts, hops))


def _sentences(name: str, values: dict[str, str]) -> Iterator[str]:
    for kind, value in values.items():
        yield _relation(kind).sentence.format(name=name, value=value)


def _questions(facts: dict[str, dict[str, str]], hops: tuple[int, ...]) -> Iterator[Question]:
    for name, values in facts.items():
        for kind, value in values.items():
            relation = _relation(kind)
            fact = relation.sentence.format(name=name, value=value)
            if 1 in hops:
                yield Question(relation.question.format(name=name), (value,), (name,), (fact,))
            for next_kind, further in _OF_VALUES.get(kind, {}).items() if 2 in hops else ():
                answer = facts[value][next_kind]
                if answer != name:
                    question = further.question.format(name=relation.phrase.format(name=name))
                    second = further.sentence.format(name=value, value=answer)
                    yield Question(question, (answer,), (name, value), (fact, second))


def _relation(kind: str) -> Relation:
    return OF_PEOPLE.get(kind) or OF_PLACES[kind]
