"""Solver that searches for the name in the question, reads the results, and continues from there.

It knows the sentence templates of the synthetic world but none of its facts: its answers come from the documents. Its
success bounds what is achievable with the library at this `top_k`.

    question -> name, kinds of facts        observation -> facts
"""

import re
from typing import NamedTuple

from starpo.ragen.envs.search_qa.environment import SearchQA
from starpo.ragen.envs.search_qa.world import OF_PEOPLE, OF_PLACES

_RELATIONS = OF_PEOPLE | OF_PLACES
_NAME = r"(?P<name>[A-Z]\w+(?: [A-Z]\w+)?)"
_VALUE = r"(?P<value>[A-Z]\w+(?: [A-Z]\w+)?|[a-z]+)"
_SENTENCES = {
    kind: re.compile(re.escape(relation.sentence).replace(r"\{name\}", _NAME).replace(r"\{value\}", _VALUE))
    for kind, relation in _RELATIONS.items()
}
_QUESTIONS = {
    kind: re.compile(re.escape(relation.question).replace(r"\{name\}", "(?P<name>.+)"))
    for kind, relation in _RELATIONS.items()
}
_PHRASES = {
    kind: re.compile(re.escape(relation.phrase).replace(r"\{name\}", _NAME))
    for kind, relation in _RELATIONS.items()
    if relation.phrase
}


class Fact(NamedTuple):
    """The content of a sentence."""

    name: str
    kind: str
    value: str
    sentence: str


def read_facts(text: str) -> list[Fact]:
    """Return every fact that a text states, ordered by kind."""
    return [
        Fact(found["name"], kind, found["value"], found[0])
        for kind, sentence in _SENTENCES.items()
        for found in sentence.finditer(text)
    ]


def read_question(question: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the name in a question, and the kinds of facts that lead from it to the answer; None if unparsable."""
    for kind, asked in _QUESTIONS.items():
        if found := asked.fullmatch(question):
            for first, phrase in _PHRASES.items():
                if inner := phrase.fullmatch(found["name"]):
                    return inner["name"], (first, kind)
            return found["name"], (kind,)
    return None


def solve(environment: SearchQA) -> bool:
    """Play an episode to its end.

    Args:
        environment: Environment after `reset`, with a question about a synthetic world.

    Returns:
        Whether the answer was right. Also False if the solver gave up: the question cannot be parsed, the next fact is
        not in the search results, or the steps are used up.
    """
    read = read_question(environment.question.text)
    if read is None:
        return False
    name, kinds = read
    for kind in kinds:
        if environment.is_over:
            return False
        observation, *_ = environment.step(environment.write("search", name))
        values = [fact.value for fact in read_facts(observation) if (fact.name, fact.kind) == (name, kind)]
        if not values:
            return False
        name = values[0]
    if not environment.is_over:
        environment.step(environment.write("finish", name))
    return environment.is_success
