"""A made-up world: people and places, what is true of them, documents that say so, and questions of one and two hops.

corpus seed -> people, places, facts -> documents, questions
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
        sentence: How a document says it, of `name` and `value`.
        question: How it is asked for, of `name`.
        phrase: How the value is named by way of `name`, where it has a document of its own; "": it has none.
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
    """Something to be found."""

    title: str
    text: str


@dataclass(frozen=True)
class Question:
    """Something to be answered.

    Attributes:
        text: As it is asked.
        answers: The right ones; any of them will do.
        way: Of a made-up world, the titles of the documents that lead to the answer, in order.
        facts: Of a made-up world, the sentence in each of them that leads on.
    """

    text: str
    answers: tuple[str, ...]
    way: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()


def make_world(num_people: int, hops: tuple[int, ...], seed: int) -> tuple[tuple[Document, ...], tuple[Question, ...]]:
    """Make up people and places, with a document for each.

    Args:
        num_people: At most 256, one for each first and last name. There are 24 places.
        hops: Which questions: 1, 2, or both.
        seed: Of everything that is true.

    Returns:
        The documents, and every question of the kinds asked for: five for each person with two hops, three with one,
        and two for each place. Questions about a person's teacher whose answer is that person are left out.
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
    documents = tuple(Document(name, " ".join(_sentences(name, said))) for name, said in facts.items())
    return documents, tuple(_questions(facts, hops))


def _sentences(name: str, said: dict[str, str]) -> Iterator[str]:
    for kind, value in said.items():
        yield _relation(kind).sentence.format(name=name, value=value)


def _questions(facts: dict[str, dict[str, str]], hops: tuple[int, ...]) -> Iterator[Question]:
    for name, said in facts.items():
        for kind, value in said.items():
            relation = _relation(kind)
            fact = relation.sentence.format(name=name, value=value)
            if 1 in hops:
                yield Question(relation.question.format(name=name), (value,), (name,), (fact,))
            for next_kind, further in _OF_VALUES.get(kind, {}).items() if 2 in hops else ():
                answer = facts[value][next_kind]
                if answer != name:
                    asked = further.question.format(name=relation.phrase.format(name=name))
                    second = further.sentence.format(name=value, value=answer)
                    yield Question(asked, (answer,), (name, value), (fact, second))


def _relation(kind: str) -> Relation:
    return OF_PEOPLE.get(kind) or OF_PLACES[kind]
