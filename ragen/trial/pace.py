"""How long the episodes of a run take on a machine: what is computed for them, times the speed of each operation.

contexts of some episodes -> Sample; Speed (`ragen.trial.speed` measures it), Sample --pace--> Pace
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.learning.examples import Batch, Example
from starpo.ragen.learning.learners.prefix_rows import PrefixRow, prefix_rows

if TYPE_CHECKING:
    from starpo.ragen.learning.demonstrations import Demonstrations
    from starpo.ragen.learning.learners.batches import MicroBatch

_OWN_WAY = 4
"""A policy that is sampled writes more variously than the demonstrator whom it imitates: one response in so many has a
second half of its own. In the preset `bandit-smollm2` a shard of 96 episodes then has 347 distinct response tokens, and
107 as demonstrated; in a run it has 340 at first, and 200 after five updates."""


@dataclass(frozen=True)
class Pace:
    """Speed of a policy in an environment on a machine.

    Attributes:
        episode_s: Seconds per episode that is played.
        pass_s: Seconds of a forward and backward pass over an episode.
        example_s: Seconds of a forward and backward pass over an example of fine-tuning.
    """

    episode_s: float
    pass_s: float
    example_s: float


@dataclass(frozen=True)
class Speed:
    """Seconds of the operations that make up a run, with the rest of the machine as busy as in the run.

    Attributes:
        read_s: Seconds in which a shard reads a token of a prompt.
        step_s: Seconds of a decoding step of a shard, however many rows it has.
        row_s: Additional seconds of each row of a step.
        num_shards: Number of shards that are played at a time.
        trained_s: Seconds per token of a forward and backward pass of an update, by all cores together.
        tuned_s: The same in fine-tuning; 0 without.
        tuned_step_s: Seconds of the optimiser's step in fine-tuning; 0 without.
        row_tokens: Maximum tokens of a row that shares prefixes (`scoring.row_tokens`).
    """

    read_s: float
    step_s: float
    row_s: float
    num_shards: int
    trained_s: float
    tuned_s: float
    tuned_step_s: float
    row_tokens: int


@dataclass(frozen=True)
class Sample:
    """Some episodes in whole groups, for which every distinct prefix is computed once.

    Attributes:
        contexts: What the model sees: a context an episode with the full context, else one a turn.
        num_episodes: Number of episodes.
        response_lengths: Number of tokens of each response. [responses]
    """

    contexts: Sequence[Example]
    num_episodes: int
    response_lengths: Sequence[int]

    @classmethod
    def played(cls, turns: pa.Table, num_episodes: int) -> "Sample":
        """Return so many episodes, or some more: played ones, and copies with other responses.

        Args:
            turns: Dataset `turns`, rows of an episode together; at least one response.
            num_episodes: Number of episodes.
        """
        contexts: list[tuple[list[int], list[bool]]] = []
        lengths, played = [], set()
        names = ["trajectory_id", "is_context_start", "prompt_ids", "response_ids"]
        for row in turns.filter(pc.greater(pc.list_value_length(turns["response_ids"]), 0)).select(names).to_pylist():
            prompt, response = row["prompt_ids"], row["response_ids"]
            if row["is_context_start"]:
                contexts.append(([], []))
            token_ids, mask = contexts[-1]
            token_ids += prompt + response
            mask += [False] * len(prompt) + [True] * len(response)
            lengths.append(len(response))
            played.add(row["trajectory_id"])
        num_copies = math.ceil(num_episodes / len(played))
        examples = [Example(np.array(token_ids), np.array(mask)) for token_ids, mask in contexts]
        copies = [_apart(example, copy) if copy else example for copy in range(num_copies) for example in examples]
        return cls(copies, num_copies * len(played), lengths * num_copies)

    @classmethod
    def demonstrated(cls, shown: "Demonstrations") -> "Sample":
        """Return demonstrated episodes."""
        return cls(shown.examples, len(shown.successes), [len(response) for response in shown.responses])

    def varied(self) -> "Sample":
        """Return the episodes of a policy that imitates these: one context in `_OWN_WAY` goes its own way."""
        contexts = [
            context if number % _OWN_WAY else _apart(context, number + 1, share=0.5)
            for number, context in enumerate(self.contexts)
        ]
        return replace(self, contexts=contexts)

    @property
    def num_turns(self) -> float:
        """Mean number of turns of an episode."""
        return len(self.response_lengths) / self.num_episodes

    @property
    def mean_length(self) -> float:
        """Mean length of a response, in tokens."""
        return float(np.mean(self.response_lengths))

    @cached_property
    def num_tokens(self) -> tuple[int, int]:
        """Number of distinct prefixes that end in a prompt, and of those that end in a response."""
        contexts = self.contexts
        row = prefix_tree([context.token_ids for context in contexts])
        of_branch = {branch: index for index, branch in row.segments}
        num_response = sum(
            int(contexts[of_branch[branch]].response_mask[num_shared:].sum())
            for branch, (num_shared, _) in enumerate(row.branches)
        )
        return len(row) - num_response, num_response

    def trained_tokens(self, token_budget: int, row_tokens: int, num_minibatches: int = 1) -> float:
        """Count the tokens that a pass computes per context, padding included.

        Args:
            token_budget: Tokens of a micro-batch.
            row_tokens: As in `Speed`.
            num_minibatches: Number of mini-batches over which the contexts are spread.
        """
        from starpo.ragen.learning.learners.batches import micro_batches

        chosen = np.arange(len(self.contexts))[::num_minibatches]
        batches = micro_batches(Batch(self.contexts), chosen, token_budget, row_tokens=row_tokens)
        return _num_computed(batches) / len(chosen)


def _apart(context: Example, by: int, share: float = 1.0) -> Example:
    """Return the context with other tokens in the last `share` of its responses, the same for the same number."""
    places = np.flatnonzero(context.response_mask)
    places = places[len(places) - math.ceil(share * len(places)) :]
    token_ids = context.token_ids.copy()
    token_ids[places] = (token_ids[places] + by) % (context.token_ids.max() + 1)
    return Example(token_ids, context.response_mask)


def _num_computed(batches: Sequence["MicroBatch"]) -> int:
    return sum(batch.token_ids_ST.numel() for batch in batches)


def prefix_tree(token_ids: Sequence[np.ndarray]) -> PrefixRow:
    """Lay all contexts out in one row, however long, which has every distinct prefix once; at least one context."""
    (row,) = prefix_rows(token_ids, range(len(token_ids)), sum(map(len, token_ids)))
    return row


def pace(
    config: StarPOConfig, speed: Speed, sample: Sample, lessons: Sample | None = None, *, is_longest: bool = False
) -> Pace:
    """Return the pace of a run whose episodes are like those of a sample.

    A shard takes P read_s + K step_s + R row_s: P and R distinct tokens of prompts and responses, K decoding steps, in
    each turn as many as the longest response has tokens. A panel shares fewer prompts, which is not counted.

    Args:
        config: Settings of the run.
        speed: Speed of the machine.
        sample: Episodes like those of a rollout, about a shard of them.
        lessons: A batch of fine-tuning; None without.
        is_longest: Whether every response is as long as the longest of the sample.
    """
    from starpo.ragen.learning.learners.batches import num_steps
    from starpo.ragen.learning.learners.supervised import NUM_PARTS, in_prefix_rows

    rollout, update, longest = config.rollout, config.update, max(sample.response_lengths)
    num_prompt, num_alike = sample.num_tokens
    num_response = num_alike * (longest / sample.mean_length if is_longest else 1)
    num_episodes, shard_groups = rollout.num_groups * rollout.group_size, min(rollout.shard_groups, rollout.num_groups)
    of_shard = shard_groups * rollout.group_size / sample.num_episodes
    shard_s = of_shard * (num_prompt * speed.read_s + num_response * speed.row_s)
    shard_s += sample.num_turns * longest * speed.step_s
    num_rounds = math.ceil(math.ceil(rollout.num_groups / shard_groups) / speed.num_shards)

    trained = sample.trained_tokens(update.micro_batch_tokens, speed.row_tokens, num_steps(num_episodes, update))
    trained *= len(sample.contexts) / sample.num_episodes * (num_prompt + num_response) / (num_prompt + num_alike)
    tuning = config.policy.fine_tuning if config.policy.type == "pretrained" else None
    example_s = 0.0
    if tuning and lessons:
        batch = Batch(lessons.contexts)
        split = in_prefix_rows(tuning.micro_batch_tokens, speed.row_tokens, NUM_PARTS)(batch)
        example_s = speed.tuned_s * _num_computed(split) / len(batch.segments) + speed.tuned_step_s / tuning.batch_size
    return Pace(
        episode_s=num_rounds * shard_s / num_episodes,
        pass_s=trained * speed.trained_s,
        example_s=example_s,
    )
