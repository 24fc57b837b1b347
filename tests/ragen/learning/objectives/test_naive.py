"""Every estimator compared with a second implementation: plain loops over Python lists, written from the formulas."""

import dataclasses
import math

import pytest
from hypothesis import given, settings

from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import ADVANTAGES
from starpo.ragen.learning.objectives.estimates import AdvantageInputs
from tests.ragen.learning.objectives.estimator_inputs import random_inputs


class Naive:
    """The estimators over lists; a trajectory is the list of its tokens in the mask."""

    def __init__(self, inputs: AdvantageInputs) -> None:
        self.i = inputs
        self.rows = range(len(inputs.returns_B))
        self.tokens = [[t for t, m in enumerate(row) if m] for row in inputs.mask_BT.tolist()]
        self.returns, self.groups = inputs.returns_B.tolist(), inputs.group_B.tolist()
        self.rewards, self.values = inputs.rewards_BT.tolist(), inputs.values_BT.tolist()
        self.turns, self.states = inputs.turn_BT.tolist(), inputs.state_BK.tolist()

    def mates(self, b: int) -> list[int]:
        return [c for c in self.rows if self.groups[c] == self.groups[b]]

    def spread(self, of_row) -> list[list[float]]:
        """Repeat each trajectory's number on its tokens."""
        return [[of_row(b) for _ in self.tokens[b]] for b in self.rows]

    def turns_of(self, b: int) -> list[int]:
        return sorted({self.turns[b][t] for t in self.tokens[b]})

    def turn_tokens(self, b: int, k: int) -> list[int]:
        return [t for t in self.tokens[b] if self.turns[b][t] == k]

    def earned(self, b: int, k: int) -> float:
        return sum(self.rewards[b][t] for t in self.turn_tokens(b, k))

    def on_turns(self, of_turn) -> list[list[float]]:
        return [[of_turn(b, self.turns[b][t]) for t in self.tokens[b]] for b in self.rows]

    def grpo(self):
        return self.spread(lambda b: self.returns[b] - mean([self.returns[c] for c in self.mates(b)]))

    def maxrl(self):
        def advantage(b):
            centre = mean([self.returns[c] for c in self.mates(b)])
            return (self.returns[b] - centre) / centre if centre > 1e-6 else 0.0

        return self.spread(advantage)

    def gdpo(self):
        sums = [0.0] * len(self.returns)
        for returns in (values.tolist() for values in self.i.component_returns.values()):
            for b in self.rows:
                of_group = [returns[c] for c in self.mates(b)]
                sums[b] += (returns[b] - mean(of_group)) / deviation(of_group)
        return self.spread(lambda b: (sums[b] - mean(sums)) / deviation(sums))

    def grpo_batch(self):
        return self.spread(lambda b: self.returns[b] - mean(self.returns))

    def rloo(self):
        others = {b: [self.returns[c] for c in self.mates(b) if c != b] for b in self.rows}
        return self.spread(lambda b: self.returns[b] - mean(others[b]) if others[b] else 0.0)

    def opo(self):
        def baseline(b):
            total = sum(len(self.tokens[c]) for c in self.mates(b))
            return sum(len(self.tokens[c]) * self.returns[c] for c in self.mates(b)) / total if total else 0.0

        return self.spread(lambda b: self.returns[b] - baseline(b))

    def remax(self):
        return self.spread(lambda b: self.returns[b] - float(self.i.greedy_returns_B[b]))

    def reinforce(self):
        return self.spread(lambda b: self.returns[b])

    def to_go(self, b: int) -> list[float]:
        rewards = [self.rewards[b][t] for t in self.tokens[b]]
        return [sum(self.i.gamma**n * r for n, r in enumerate(rewards[t:])) for t in range(len(rewards))]

    def istar(self):
        paid = self.i.implicit_rewards_BT.tolist()

        def of_turn(b, k):
            return sum(paid[b][t] for t in self.turn_tokens(b, k))

        def scaled(value, values):
            centre = mean(values)
            deviation = math.sqrt(mean([(v - centre) ** 2 for v in values]))
            return (value - centre) / (deviation if deviation > 1e-6 else 1)

        def advantage(b, k):
            steps = [of_turn(c, j) for c in self.mates(b) for j in self.turns_of(c)]
            episode = scaled(self.returns[b], [self.returns[c] for c in self.mates(b)])
            return episode + scaled(of_turn(b, k), steps)

        return self.on_turns(advantage)

    def reward_to_go(self):
        return [self.to_go(b) for b in self.rows]

    def otb(self):
        weights = []
        for b in self.rows:
            energies = [
                1 - 2 * math.exp(self.i.logprobs_BT[b, t]) + float(self.i.collision_BT[b, t]) for t in self.tokens[b]
            ]
            weights.append([sum(energies[: n + 1]) for n in range(len(energies))])
        to_go = [self.to_go(b) for b in self.rows]

        def baseline(b, n):
            has = [c for c in self.mates(b) if len(self.tokens[c]) > n]
            total = sum(weights[c][n] for c in has)
            return sum(weights[c][n] * to_go[c][n] for c in has) / total if total > 0 else 0.0

        return [[to_go[b][n] - baseline(b, n) for n in range(len(self.tokens[b]))] for b in self.rows]

    def gae(self):
        """By its definition, a sum of discounted deltas."""
        advantages = []
        for b in self.rows:
            values = [self.values[b][t] for t in self.tokens[b]] + [0.0]
            rewards = [self.rewards[b][t] for t in self.tokens[b]]
            deltas = [r + self.i.gamma * values[n + 1] - values[n] for n, r in enumerate(rewards)]
            decay = self.i.gamma * self.i.gae_lambda
            advantages.append([sum(decay**m * d for m, d in enumerate(deltas[n:])) for n in range(len(deltas))])
        return advantages

    def turn_level(self, b: int, at: int = 0) -> dict[int, float]:
        turns = self.turns_of(b)
        values = [self.values[b][self.turn_tokens(b, k)[at]] for k in turns] + [0.0]
        deltas = [self.earned(b, k) + self.i.gamma_turn * values[n + 1] - values[n] for n, k in enumerate(turns)]
        decay = self.i.gamma_turn * self.i.lambda_turn
        return {k: sum(decay**m * d for m, d in enumerate(deltas[n:])) for n, k in enumerate(turns)}

    def turn_gae(self):
        levels = [self.turn_level(b) for b in self.rows]
        return self.on_turns(lambda b, k: levels[b][k])

    def bi_level_gae(self):
        rows = []
        for b in self.rows:
            advantages: dict[int, float] = {}
            turns = self.turns_of(b)
            next_value = next_advantage = 0.0
            for k in reversed(turns):
                *inner, end = self.turn_tokens(b, k)
                reward, value = self.rewards[b][end], self.values[b][end]
                advantage = reward + self.i.gamma_turn * (next_value + self.i.lambda_turn * next_advantage) - value
                advantages[end] = advantage
                next_value, next_advantage = value, advantage
                ahead_value, ahead = value, advantage
                for t in reversed(inner):
                    ahead = self.rewards[b][t] + self.i.gamma * (ahead_value + self.i.gae_lambda * ahead)
                    ahead -= self.values[b][t]
                    ahead_value, advantages[t] = self.values[b][t], ahead
            rows.append([advantages[t] for t in self.tokens[b]])
        return rows

    def hierarchical_gae(self):
        levels = [self._levels(b) for b in self.rows]
        subgoals, answers = self.i.marks_BK.tolist(), self.i.is_answer_BT.tolist()
        return [
            [
                levels[b][1 if (k == 0 or subgoals[b][k]) and not answers[b][t] else 0][k]
                for t in self.tokens[b]
                for k in [self.turns[b][t]]
            ]
            for b in self.rows
        ]

    def _levels(self, b: int) -> tuple[dict[int, float], dict[int, float]]:
        """Low and high advantages of each turn; they differ only at turns that begin a segment."""
        turns, gamma, lam = self.turns_of(b), self.i.gamma_turn, self.i.lambda_turn
        value = {k: self.values[b][self.turn_tokens(b, k)[0]] for k in turns}
        starts = [n for n, k in enumerate(turns) if k == 0 or self.i.marks_BK[b, k]]
        low, high = {}, {}
        for n, k in reversed(list(enumerate(turns))):
            is_last = n + 1 == len(turns)
            low[k] = self.earned(b, k) + (0 if is_last else gamma * value[turns[n + 1]]) - value[k]
            if not is_last and n + 1 not in starts:
                low[k] += gamma * lam * low[turns[n + 1]]
        for n in reversed(starts):
            stop = min([m for m in starts if m > n], default=len(turns))
            earned = sum(gamma**m * self.earned(b, turns[n + m]) for m in range(stop - n))
            ahead = (value[turns[stop]] + lam * high[turns[stop]]) if stop < len(turns) else 0.0
            high[turns[n]] = earned + gamma ** (stop - n) * ahead - value[turns[n]]
        return low, low | high

    def _steps(self, depth: int) -> dict[tuple[int, int], tuple[float, int]]:
        """Step advantage of each turn among the turns with the same last states, and the number of these turns."""

        def to_go(b, k):
            return sum(self.i.gamma_turn ** (j - k) * self.earned(b, j) for j in self.turns_of(b) if j >= k)

        clusters: dict[tuple, list[tuple[int, int]]] = {}
        for b in self.rows:
            for k in self.turns_of(b):
                if k + 1 >= depth:
                    key = (self.groups[b], *self.states[b][k - depth + 1 : k + 1])
                    clusters.setdefault(key, []).append((b, k))
        return {
            (b, k): (to_go(b, k) - mean([to_go(*other) for other in members]), len(members))
            for members in clusters.values()
            for b, k in members
        }

    def gigpo(self):
        episodes, steps = self.grpo(), self._steps(1)
        return [
            [episodes[b][n] + steps[b, self.turns[b][t]][0] for n, t in enumerate(self.tokens[b])] for b in self.rows
        ]

    def hgpo(self):
        episodes, depths = self.grpo(), {d: self._steps(d) for d in (1, 2, 3)}

        def step(b, k):
            estimates = [(d, *steps[b, k]) for d, steps in depths.items() if steps.get((b, k), (0, 0))[1] > 1]
            return sum(d * a for d, a, _ in estimates) / sum(d for d, *_ in estimates) if estimates else 0.0

        return [[episodes[b][n] + step(b, self.turns[b][t]) for n, t in enumerate(self.tokens[b])] for b in self.rows]

    def monte_carlo(self):
        return self.on_turns(lambda b, k: float(self.i.marks_BK[b, k]))


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def deviation(values: list[float]) -> float:
    """Standard deviation; 1 if the values are equal."""
    std = math.sqrt(mean([(value - mean(values)) ** 2 for value in values]))
    return std if std > 1e-6 else 1.0


@pytest.mark.ci
@pytest.mark.parametrize("name", sorted(ADVANTAGES))
@given(inputs=random_inputs())
@settings(max_examples=60)
def test_estimator_equals_formula_in_loops(name, inputs):
    # segments begin with the trajectory, so mark a subgoal at the first turn with tokens, as at turn 0
    first = inputs.turn_BT.masked_fill(~inputs.mask_BT, 99).min(1).values.clamp(max=inputs.marks_BK.shape[1] - 1)
    marks = inputs.marks_BK.scatter(1, first[:, None], 1.0)
    inputs = dataclasses.replace(inputs, marks_BK=marks)
    advantages = load(ADVANTAGES, name)(inputs).advantages_BT
    for b, expected in enumerate(getattr(Naive(inputs), name)()):
        assert advantages[b][inputs.mask_BT[b]].tolist() == pytest.approx(expected, abs=1e-9)
