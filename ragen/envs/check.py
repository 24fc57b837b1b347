"""`check`: tests whether an environment follows the conventions that stored, replayable rollouts rely on.

It plays random episodes and compares them, as a black-box test. Every registered environment passes; run it first when
adding a new one (`check(settings)`, or `starpo envs --check`).

    settings -> random episodes -> findings
"""

import json
import math
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mode
from typing import Any

import numpy as np

from starpo.ragen.core.errors import CallLimitError, EnvironmentFault, MissingPackageError
from starpo.ragen.core.guard import FOREIGN
from starpo.ragen.core.limits import environment_call
from starpo.ragen.core.seeding import python_random
from starpo.ragen.core.visible import shortened
from starpo.ragen.envs.base import MAX_OBSERVATION, Environment, EnvironmentSettings
from starpo.ragen.envs.grammar import Names
from starpo.ragen.envs.make import environment_type, make, settings_type

_NUM_SEEDS = 8
_MAX_STEPS = 40
_STEPS_TO_AN_END = 400
_NO_ACTION = "no such action"
_RAISED = "raised "
_MAX_FOUND = 600
_VALUE = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|-?\d+(?:\.\d+)?|\b(?:True|False|None)\b")
"""A value in a finding; findings that differ in values alone are one mistake."""


@dataclass(frozen=True)
class BrokenConvention:
    """A broken convention and the evidence for it.

    Attributes:
        rule: Name of the rule.
        evidence: The first evidence.
        also: Names of further rules that found the same.
        num_more: How often the same was found after the first time.
    """

    rule: str
    evidence: str
    also: tuple[str, ...] = ()
    num_more: int = 0

    def __str__(self) -> str:
        rules = f", in {len(self.also) + 1} rules" if self.also else ""
        more = f" (and {self.num_more} more like it{rules})" if self.num_more else ""
        return f"{self.rule}: {shortened(self.evidence, _MAX_FOUND)}{more}"


Rule = Callable[[EnvironmentSettings], Iterator[str]]
"""Yields one sentence per violation; the function's name, in words, is the rule's name."""


def check(settings: EnvironmentSettings, *, should_start_process: bool = True) -> list[BrokenConvention]:
    """Check the environment that `settings` describe.

    Args:
        settings: Settings of any registered environment.
        should_start_process: Whether to compare with a subprocess under another hash seed too; takes about a second.

    Returns:
        Violations, those that differ in values alone as one; empty if there are none. Situations that random play does
        not reach (most often the end of an episode) are not checked. An exception raised within a rule is a finding of
        that rule. Rules that compare two episodes are skipped for an environment that declares itself not replayable.

    Raises:
        ConfigError: If no environment of that type is registered.
        MissingPackageError: If the environment needs a package that is not installed.
        CallLimitError: If a rule takes longer than a call of an environment may.
    """
    environment_type(settings.type)
    rules = RULES + ((_same_in_another_process,) if should_start_process else ())
    if _says_it_cannot_be_replayed(settings):
        rules = tuple(rule for rule in rules if rule not in _COMPARING)
    return _grouped(finding for rule in rules for finding in _apply(rule, settings))


def _grouped(findings: Iterable[BrokenConvention]) -> list[BrokenConvention]:
    """Combine findings that differ in values alone; of different rules, those that raised the same."""
    groups: dict[tuple[str, str], BrokenConvention] = {}
    for finding in findings:
        is_raised = finding.evidence.startswith(_RAISED)
        key = "" if is_raised else finding.rule, _VALUE.sub("", finding.evidence)
        first = groups.get(key)
        if first is None:
            groups[key] = finding
        else:
            also = dict.fromkeys((*first.also, finding.rule))
            also.pop(first.rule, None)
            groups[key] = replace(first, also=tuple(also), num_more=first.num_more + 1)
    return list(groups.values())


def trace(settings: EnvironmentSettings, seed: int, dynamics_seed: int, max_steps: int = _MAX_STEPS) -> list[Any]:
    """Play one random episode, with its random player seeded by `seed` alone, and record all that an agent could see.

    Returns:
        JSON-serialisable: the first observation, info, digest, rules and action grammar, then for every step its
        action, results and digest. Ends with the episode or after `max_steps`.
    """
    return list(_play(make(settings), seed, dynamics_seed, max_steps))


def replay_fault(settings: EnvironmentSettings, findings: Sequence[BrokenConvention]) -> str:
    """Return why the same seeds and actions may not give the same episode; "" if they do, as far as play has shown.

    Args:
        settings: Settings of the environment, whose own declaration comes first.
        findings: All findings of `check`, including those of the subprocess.

    Raises:
        MissingPackageError: If the environment needs a package that is not installed.
    """
    names = set(map(_name_of, RULES_OF_REPLAY))
    fault = next((finding.evidence for finding in findings if names & {finding.rule, *finding.also}), "")
    try:
        return make(settings).replay_fault or fault
    except FOREIGN:
        if not fault:
            raise
        return fault


def _name_of(rule: Rule) -> str:
    """Return a rule's name in words."""
    return rule.__name__.strip("_").replace("_", " ")


def _says_it_cannot_be_replayed(settings: EnvironmentSettings) -> bool:
    try:
        return not make(settings).is_replayable
    except (MissingPackageError, CallLimitError):
        raise
    except FOREIGN:
        return False  # the rules will report the error


def _apply(rule: Rule, settings: EnvironmentSettings) -> list[BrokenConvention]:
    name = _name_of(rule)
    try:
        with environment_call(settings.type):
            findings = [BrokenConvention(name, breach) for breach in rule(settings)]
    except CallLimitError:
        raise
    except FOREIGN as error:  # an environment may raise anything; that is a finding too
        findings = [BrokenConvention(name, f"{_RAISED}{type(error).__name__}: {error}")]
    return findings


def _play(environment: Environment[Any], seed: int, dynamics_seed: int, max_steps: int = _MAX_STEPS) -> Iterator[Any]:
    observation, info = environment.reset(seed=seed, dynamics_seed=dynamics_seed)
    yield [observation, info, environment.state_digest(), environment.rules(), environment.grammar.describe()]
    rng = python_random(seed, "random player")
    for _ in range(max_steps):
        action = environment.random_action(rng)
        observation, reward, terminated, truncated, info = environment.step(action)
        yield [action, observation, reward, terminated, truncated, info, environment.state_digest()]
        if terminated:
            break


def _settings_survive_json(settings: EnvironmentSettings) -> Iterator[str]:
    if settings_type(settings.type).model_validate_json(settings.model_dump_json()) != settings:
        yield "settings that were written as JSON and read again are not equal to those written"


def _nothing_before_reset(settings: EnvironmentSettings) -> Iterator[str]:
    environment = make(settings)
    try:
        environment.step(_NO_ACTION)
    except EnvironmentFault:
        return
    yield "a step before the first reset is not refused with EnvironmentFault"


def _reset_and_step_conventions(settings: EnvironmentSettings) -> Iterator[str]:
    environment = make(settings)
    for seed in range(_NUM_SEEDS):
        observation, info = environment.reset(seed=seed, dynamics_seed=seed)
        yield from _wrong_results(environment, observation, info)
        if environment.is_success is not False:
            yield f"seed {seed}: is_success is {environment.is_success!r} at the start"
        rng = python_random(seed, "random player")
        for _ in range(_MAX_STEPS):
            before = environment.state_digest()
            observation, reward, terminated, truncated, info = environment.step(environment.random_action(rng))
            yield from _wrong_results(environment, observation, info)
            if not isinstance(reward, float) or not math.isfinite(reward):
                yield f"reward {reward!r} is not a finite float"
            if not isinstance(terminated, bool) or truncated is not False:
                yield f"terminated {terminated!r} must be a bool and truncated {truncated!r} False"
            has_changed = environment.state_digest() != before
            if info.get("effective") is not has_changed:
                yield f"info['effective'] is {info.get('effective')!r} where 'the digest changes' is {has_changed}"
            if terminated:
                break


def _wrong_results(environment: Environment[Any], observation: object, info: object) -> Iterator[str]:
    if not isinstance(observation, str) or observation != environment.render():
        yield f"observation {observation!r} is not the text that render() gives"
    elif len(observation) > MAX_OBSERVATION:
        yield f"an observation has {len(observation)} characters, at most {MAX_OBSERVATION} are accepted"
    if not isinstance(info, dict) or json.loads(json.dumps(info, allow_nan=False)) != info:
        yield f"info {info!r} is not a dict that survives JSON"
    if not isinstance(environment.is_success, bool):
        yield f"is_success {environment.is_success!r} is not a bool"
    if not re.fullmatch("[0-9a-f]{16}", environment.state_digest()):
        yield f"state_digest {environment.state_digest()!r} is not 16 hexadecimal digits"


def _actions_can_be_named(settings: EnvironmentSettings) -> Iterator[str]:
    environment = make(settings)
    for seed in range(_NUM_SEEDS):
        environment.reset(seed=seed)
        grammar, actions = environment.grammar, environment.actions
        drawn = environment.random_action(python_random(seed, "random player"))
        unread = next((action for action in (drawn, *actions) if grammar.read(action) != action), None)
        if unread is not None:
            yield f"action {unread!r} is read by the grammar as {grammar.read(unread)!r}"
        if not isinstance(grammar, Names):
            continue
        if not isinstance(actions, tuple) or not actions or len(set(map(str.casefold, actions))) < len(actions):
            yield f"actions {actions!r} must be a tuple of at least one name, all different whatever their case"
        for action in actions:
            if action != " ".join(action.split()) or not action or re.search(r"[|<>]", action):
                yield f"action {action!r} cannot stand in an answer: no '|', '<', '>', line ends or outer blanks"
        if not all(action in environment.rules() for action in actions):
            yield f"rules() does not name every one of the actions {', '.join(actions)}"


def _unknown_actions_are_refused(settings: EnvironmentSettings) -> Iterator[str]:
    environment = make(settings)
    environment.reset(seed=0)
    before = environment.state_digest()
    unknown = next(text for text in (_NO_ACTION, "") if environment.grammar.read(text) is None)
    try:
        environment.step(unknown)
        yield f"step({unknown!r}) is not refused with EnvironmentFault"
    except EnvironmentFault:
        if environment.state_digest() != before:
            yield "an action that was refused has changed the state"


def _the_end_is_the_end(settings: EnvironmentSettings) -> Iterator[str]:
    environment = make(settings)
    for seed in range(_NUM_SEEDS):
        *_, last = _play(environment, seed, seed, _STEPS_TO_AN_END)
        has_ended = len(last) == 7 and last[3]
        if environment.is_success and not has_ended:
            yield f"seed {seed}: success without an end"
        if has_ended:
            try:
                environment.step(environment.random_action(python_random(seed, "after the end")))
                yield f"seed {seed}: a step after the end is not refused with EnvironmentFault"
            except EnvironmentFault:
                continue


def _same_seeds_same_episode(settings: EnvironmentSettings) -> Iterator[str]:
    used = make(settings)
    for seed in range(_NUM_SEEDS):
        expected = trace(settings, seed, seed)
        if list(_play(used, seed, seed)) != expected:
            yield f"seed {seed}: an instance that was used before plays another episode than a new one"
        left, right = make(settings), make(settings)
        other = _play(right, seed + 1, seed + 1)
        for event, wanted in zip(_play(left, seed, seed), expected, strict=True):
            next(other, None)
            if event != wanted:
                yield f"seed {seed}: another instance that plays at the same time changes this one's episode"
                break


def _members_share_their_start(settings: EnvironmentSettings) -> Iterator[str]:
    for seed in range(_NUM_SEEDS):
        starts = [trace(settings, seed, member, max_steps=0) for member in range(_NUM_SEEDS)]
        if any(start != starts[0] for start in starts):
            yield f"seed {seed}: members with different dynamics seeds do not start alike"


def _chance_is_each_members_own(settings: EnvironmentSettings) -> Iterator[str]:
    has_chance = make(settings).has_chance
    episodes = [[trace(settings, seed, member) for member in range(2 * _NUM_SEEDS)] for seed in range(_NUM_SEEDS)]
    differs = any(member != members[0] for members in episodes for member in members)
    if has_chance and not differs:
        yield "has_chance is True, but the same actions end alike under every dynamics seed: members share their chance"
    if differs and not has_chance:
        yield "has_chance is False, but the same actions end differently under different dynamics seeds"


def _a_clone_goes_its_own_way(settings: EnvironmentSettings) -> Iterator[str]:
    environment = make(settings)
    environment.reset(seed=0)
    try:
        environment.clone(0)
    except EnvironmentFault:
        return  # it does not support search, which is optional
    for seed in range(_NUM_SEEDS):
        expected = trace(settings, seed, seed)
        environment.reset(seed=seed, dynamics_seed=seed + 1)
        environment.reseed(seed)
        for action, *results in expected[1:]:
            clone = environment.clone(seed + 2)
            if clone.state_digest() != environment.state_digest():
                yield f"seed {seed}: clone() gives another state"
            clone.step(action)
            if [*environment.step(action), environment.state_digest()] != results:
                yield f"seed {seed}: after reseed(n), or once a clone has moved, an episode is not that of seed n"
                break


def _seeds_give_different_starts(settings: EnvironmentSettings) -> Iterator[str]:
    environment = make(settings)
    starts = set()
    for seed in range(4 * _NUM_SEEDS):
        environment.reset(seed=seed)
        starts.add(environment.state_digest())
    limit = environment.num_initial_states
    if len(starts) < 2 and limit != 1:
        yield f"{4 * _NUM_SEEDS} seeds give one and the same initial state"
    if limit is not None and len(starts) > limit:
        yield f"{len(starts)} different initial states, more than num_initial_states = {limit}"


def _looking_changes_nothing(settings: EnvironmentSettings) -> Iterator[str]:
    expected = trace(settings, 0, 0)
    environment = make(settings)
    for event, wanted in zip(_play(environment, 0, 0), expected, strict=True):
        looks = [(environment.render(), environment.rules(), environment.state_digest()) for _ in range(2)]
        if event != wanted or looks[0] != looks[1]:
            yield "looking at the state (render, rules, state_digest) changes it, or changes the chance"
            return


def _global_generators_are_left_alone(settings: EnvironmentSettings) -> Iterator[str]:
    saved = random.getstate(), np.random.get_state()
    # Generator states that no ordinary seed produces, so that an environment that always sets the same seed is caught.
    marked, marked_numpy = random.Random(__name__), np.random.RandomState(list(__name__.encode()))
    try:
        random.setstate(marked.getstate())
        np.random.set_state(marked_numpy.get_state())
        trace(settings, 0, 0)
        if random.getstate() != marked.getstate():
            yield "an episode draws from the global generator of random, or seeds it"
        if not all(map(np.array_equal, np.random.get_state(), marked_numpy.get_state())):
            yield "an episode draws from the global generator of numpy.random, or seeds it"
    finally:
        random.setstate(saved[0])
        np.random.set_state(saved[1])


def _action_cost_is_a_lower_bound(settings: EnvironmentSettings) -> Iterator[str]:
    environment = make(settings)
    taken: dict[float, list[Any]] = {}
    for seed in range(_NUM_SEEDS):
        _, *steps = _play(environment, seed, seed)
        taken.setdefault(environment.action_cost, []).extend(steps)  # episodes of a mixture differ in their cost
    for cost, steps in taken.items():
        rewards = [reward for _, _, reward, *_ in steps]
        idle = [reward for _, _, reward, _, _, info, _ in steps if not info["effective"]]
        ordinary = min([mode(rewards), *idle])  # the most common reward, and those of no-ops
        if not cost <= min(0.0, ordinary):
            yield f"action_cost is {cost:g}, but an ordinary action pays {ordinary:g}: not acting would pay better"


def _same_in_another_process(settings: EnvironmentSettings) -> Iterator[str]:
    program = (
        "import json, sys; from starpo.ragen.envs.check import trace; "
        "from starpo.ragen.envs.make import settings_type; "
        "settings = settings_type(sys.argv[1]).model_validate_json(sys.argv[2]); "
        "sys.stdout.write(json.dumps([trace(settings, seed, seed) for seed in range(int(sys.argv[3]))]))"
    )
    arguments = [settings.type, settings.model_dump_json(), str(_NUM_SEEDS)]
    hash_seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    child = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    if child.returncode != 0:
        yield f"the other process failed: {child.stderr.strip().splitlines()[-1:]}"
    elif json.loads(child.stdout) != [trace(settings, seed, seed) for seed in range(_NUM_SEEDS)]:
        yield "the same seeds give other episodes in a process with another hash seed"


RULES: tuple[Rule, ...] = (
    _settings_survive_json,
    _nothing_before_reset,
    _reset_and_step_conventions,
    _actions_can_be_named,
    _unknown_actions_are_refused,
    _the_end_is_the_end,
    _same_seeds_same_episode,
    _members_share_their_start,
    _chance_is_each_members_own,
    _a_clone_goes_its_own_way,
    _seeds_give_different_starts,
    _looking_changes_nothing,
    _global_generators_are_left_alone,
    _action_cost_is_a_lower_bound,
)
"""In the order in which findings are reported."""

RULES_OF_REPLAY: tuple[Rule, ...] = (_same_seeds_same_episode, _same_in_another_process)
"""Rules that an environment violates if it cannot be replayed."""
_COMPARING = (
    *RULES_OF_REPLAY,
    _members_share_their_start,
    _chance_is_each_members_own,
    _a_clone_goes_its_own_way,
    _looking_changes_nothing,
)
