"""Demonstrator for SearchQA that reads well but often follows a fact that the question does not ask for.

The noise is in the decisions: which fact to follow, and whether to search further or to answer. The reasoning is a
sentence of a retrieved document. A policy that imitates it can search and read; which fact a question asks for, and
when to answer, is left for the reward to teach.
"""

import random
import re
from typing import NamedTuple

from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.search_qa.environment import SearchQA
from starpo.ragen.envs.search_qa.world import OF_PEOPLE, OF_PLACES

_NAME = r"(?P<name>[A-Z]\w+(?: [A-Z]\w+)?)"
_VALUE = r"(?P<value>[A-Z]\w+(?: [A-Z]\w+)?|[a-z]+)"
_SENTENCES = [
    re.compile(re.escape(relation.sentence).replace(r"\{name\}", _NAME).replace(r"\{value\}", _VALUE))
    for relation in (OF_PEOPLE | OF_PLACES).values()
]


class Fact(NamedTuple):
    """The content of a sentence."""

    name: str
    value: str
    sentence: str


def read_facts(text: str) -> list[Fact]:
    """Return every fact that a text states, ordered by kind."""
    return [
        Fact(match["name"], match["value"], match[0]) for sentence in _SENTENCES for match in sentence.finditer(text)
    ]


def demonstrate(environment: SearchQA, skill: float, rng: random.Random) -> Demonstration:
    """Search, or answer. The environment is not stepped.

    The reasoning is `find Ada Ash` or a sentence such as `Ada Ash learned from Eva Hart`.

    Args:
        environment: An environment whose episode has not ended.
        skill: Probability that a decision is the right one, once a search has returned something. Otherwise a fact is
            drawn from the best document, and its value is searched for or given as the answer with equal probability.
        rng: The only source of randomness.
    """
    question = environment.question
    if not question.way:
        return _with_a_users_documents(environment, skill, rng)
    is_right, text = rng.random() < skill, environment.results[0].text if environment.results else ""
    facts = read_facts(text)
    if facts and not is_right:
        fact = rng.choice(facts)
        kind = rng.choice(("search", "finish"))
        return Demonstration(fact.sentence.rstrip("."), (environment.write(kind, fact.value),))
    last = environment.searched[-1] if environment.searched else ""
    if last not in question.way:
        return Demonstration(f"find {question.way[0]}", (environment.write("search", question.way[0]),))
    place = question.way.index(last)
    is_last = place + 1 == len(question.way)
    action = environment.write(*(("finish", question.answers[0]) if is_last else ("search", question.way[place + 1])))
    return Demonstration(question.facts[place].rstrip("."), (action,))


def _with_a_users_documents(environment: SearchQA, skill: float, rng: random.Random) -> Demonstration:
    """Search for the question's text; then answer correctly with probability `skill`, otherwise with a found title."""
    if not environment.searched:
        return Demonstration("find it", (environment.write("search", environment.question.text),))
    titles = [document.title for document in environment.results]
    is_right = rng.random() < skill or not titles
    answer = environment.question.answers[0] if is_right else rng.choice(titles)
    return Demonstration("answer", (environment.write("finish", answer),))
