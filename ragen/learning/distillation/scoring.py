"""Log-probs of stored responses under a teacher that is loaded here, and what is stored and measured of any teacher's.

    folder -> LoadedTeacher
    turns -> hints -> contexts -> micro-batches with shared prefixes -> teacher_logprobs, teacher_top_tokens, metrics

The passes are those with which an update scores tokens (ADR 36), so a teacher like the policy costs as much as one of
the two scorings of an update.
Legend: N response tokens of the rollout, M of a micro-batch, C positions of it at a time, K most probable tokens, V
vocabulary.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from starpo.ragen.agents.policy.folder import num_positions
from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.config.device import Device
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.distillation.contexts import TeacherContexts
from starpo.ragen.learning.learners.data.batches import MicroBatch, micro_batches
from starpo.ragen.learning.learners.learner import OnProgress
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.models.scoring import Quantity, ResponseScores, check_output_layer, row_tokens
from starpo.schemas.datasets import TEACHER_LOGPROBS, TEACHER_TOP_TOKENS

MAX_NATS = 1e4
"""A log-prob below minus this is none: the weights are damaged."""


@dataclass(frozen=True)
class TeacherScores:
    """What a teacher says of all response tokens, on the CPU.

    Attributes:
        logprobs_N: Their log-probs, nats. float32
        is_mode_N: Whether each is the token that the teacher finds most probable. bool
        top_ids_NK: The K tokens that the teacher finds most probable at its position, the first one most. int32
        top_logprobs_NK: Theirs, nats. float32
    """

    logprobs_N: Tensor
    is_mode_N: Tensor
    top_ids_NK: Tensor
    top_logprobs_NK: Tensor

    @classmethod
    def empty(cls, num_tokens: int, top_k: int) -> "TeacherScores":
        """Return scores to be filled in."""
        return cls(
            torch.zeros(num_tokens),
            torch.zeros(num_tokens, dtype=torch.bool),
            torch.zeros((num_tokens, top_k), dtype=torch.int32),
            torch.zeros((num_tokens, top_k)),
        )


class _TopScores(ResponseScores):
    """Also scores the K most probable tokens at each position: their log-probs and ids, [M, K] each, come last."""

    top_k = 0

    def _read(
        self, logprobs_CV: Tensor, prediction_M: Tensor, target_M: Tensor, quantities: Sequence[Quantity]
    ) -> tuple[Tensor, ...]:
        top = logprobs_CV.topk(self.top_k)
        scores = super()._read(logprobs_CV, prediction_M, target_M, quantities)
        return (*scores, top.values.index_select(0, prediction_M), top.indices.index_select(0, prediction_M))


class LoadedTeacher:
    """A teacher that is loaded.

    Attributes:
        key: Key of its checkpoint.
        is_deterministic: Whether it gives the same bytes again on a machine of this type.
    """

    def __init__(self, folder: str, key: str, dtype: str) -> None:
        """Load a teacher.

        Args:
            folder: Local folder of its policy.
            key: Key of its checkpoint.
            dtype: Of its passes.

        Raises:
            PolicyError: If the folder holds no policy whose tokens can be scored.
        """
        model, self.tokenizer = load_policy(folder, torch.float32)
        check_output_layer(model)
        device = Device.here()
        self.key, self.is_deterministic = key, device.is_repeatable
        self._max_tokens = num_positions(folder)
        self._row_tokens = row_tokens(model)
        self._scorer = _TopScores(model.to(device.kind).requires_grad_(False))  # type: ignore[arg-type]
        self._runner = MicroBatchRunner(device, Runtime.current().threads, dtype)

    def score(
        self,
        contexts: TeacherContexts,
        temperature: float,
        token_budget: int,
        top_k: int = 0,
        limit_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> TeacherScores:
        """Score all response tokens.

        Args:
            contexts: At least one.
            temperature: Temperature of the rollout, at which the policy's log-probs are.
            token_budget: Tokens of a micro-batch.
            top_k: K, at most the vocabulary.
            limit_s: Seconds that it may take.
            on_progress: Called with the number of passes done, and their total.

        Raises:
            LearnerError: If a context is longer than the teacher reads, the teacher takes longer than its limit, or a
                log-prob is not finite.
        """
        longest = max(len(context.token_ids) for context in contexts.segments)
        if self._max_tokens is not None and longest > self._max_tokens:
            raise LearnerError(
                f"the teacher's longest context, hints included, has {longest} tokens, and it reads "
                f"{self._max_tokens}: shorten teacher.hint_text or rollout.max_context_tokens, or take another teacher"
            )
        if top_k > self._scorer.model.config.get_text_config().vocab_size:
            raise LearnerError(f"teacher.top_k = {top_k} is more than the teacher's vocabulary: lower it")
        began = time.monotonic()
        batches = micro_batches(contexts, np.arange(len(contexts.segments)), token_budget, row_tokens=self._row_tokens)

        @torch.no_grad()
        def of_batch(batch: MicroBatch) -> tuple[Tensor, ...]:
            spent = time.monotonic() - began
            if limit_s is not None and spent > limit_s:
                raise LearnerError(
                    f"the teacher has taken {spent:.1f} s for this rollout and has not finished, and teacher.limit_s = "
                    f"{limit_s:g}: raise the limit, or take a smaller teacher"
                )
            scores = self._scorer(batch.to(self._runner.device), temperature, ("logprob", "mode"))
            logprob_M, mode_M, top_logprobs_MK, top_ids_MK = scores
            return logprob_M.float(), logprob_M >= mode_M, top_ids_MK.int(), top_logprobs_MK.float()

        scored = TeacherScores.empty(contexts.num_tokens, top_k)
        self._scorer.top_k = top_k
        runner = self._runner.reporting(on_progress)
        runner.expect(len(batches))
        with runner.alone():
            for batch, parts in zip(batches, runner.run(of_batch, batches), strict=True):
                for whole, part in zip(vars(scored).values(), parts, strict=True):
                    whole[batch.token_M] = part.cpu()
        if not bool((scored.logprobs_N > -MAX_NATS).all() & (scored.logprobs_N <= 0).all()):
            raise LearnerError(
                "the teacher gives a token a log-probability that is not finite: its weights are damaged, or overflow "
                "in this dtype; fetch them again, or set teacher.dtype = 'float32'"
            )
        return scored


def table(contexts: TeacherContexts, scored: TeacherScores) -> pa.Table:
    """Return dataset `teacher_logprobs`, a row per turn with a response."""
    lists = {"logprobs": scored.logprobs_N, "is_mode": scored.is_mode_N}
    hints = {"num_hint_tokens": pa.array([turn.num_hint_tokens for turn in contexts.turns], pa.int32())}
    return _table(contexts, TEACHER_LOGPROBS.schema, lists, hints)


def top_tokens(contexts: TeacherContexts, scored: TeacherScores) -> pa.Table:
    """Return dataset `teacher_top_tokens`, a row per turn with a response."""
    return _table(
        contexts,
        TEACHER_TOP_TOKENS.schema,
        {"token_ids": scored.top_ids_NK, "logprobs": scored.top_logprobs_NK},
    )


def _table(
    contexts: TeacherContexts,
    schema: pa.Schema,
    lists: Mapping[str, Tensor],
    columns: Mapping[str, pa.Array] | None = None,
) -> pa.Table:
    turns = contexts.turns
    bounds = np.append(0, np.cumsum([turn.num_tokens for turn in turns]))

    def per_turn(name: str, values: Tensor) -> pa.Array:
        kind, offsets = schema.field(name).type, bounds * math.prod(values.shape[1:])
        items = pa.array(values.flatten().numpy()).cast(kind.value_type)
        return pa.ListArray.from_arrays(offsets.astype(np.int32), items, type=kind)

    return pa.table(
        {
            "trajectory_id": [turn.trajectory_id for turn in turns],
            "group_id": [turn.group_id for turn in turns],
            "turn": pa.array([turn.turn for turn in turns], pa.int32()),
            **{name: per_turn(name, values) for name, values in lists.items()},
            **(columns or {}),
        },
        schema=schema,
    )


def metrics(contexts: TeacherContexts, scored: TeacherScores, turns: pa.Table) -> dict[str, float]:
    """Return metrics of what the teacher says, over all response tokens of a rollout.

    Args:
        contexts: The contexts.
        scored: What the teacher says.
        turns: Dataset `turns`.

    Returns:
        `teacher/kl`: mean of log mu - log pi_T, mu the policy that sampled, over tokens with log-probs; absent without.
        `teacher/agreement`: share of tokens that the teacher finds most probable. `teacher/cross_entropy`: mean of
        -log pi_T.
        `teacher/hint_tokens_mean`: tokens of a turn's hint. `teacher/top_k_mass`: mean probability of its most probable
        tokens together; absent without.
    """
    values = {
        "agreement": float(scored.is_mode_N.double().mean()),
        "cross_entropy": -float(scored.logprobs_N.double().mean()),
        "hint_tokens_mean": float(np.mean([turn.num_hint_tokens for turn in contexts.turns])),
    }
    if scored.top_ids_NK.shape[1]:
        values["top_k_mass"] = float(scored.top_logprobs_NK.double().exp().sum(1).mean())
    columns = (turns[name].to_pylist() for name in ("trajectory_id", "turn", "behaviour_logprobs"))
    behaviour = {(trajectory_id, turn): logprobs for trajectory_id, turn, logprobs in zip(*columns, strict=True)}
    sampled = [value for turn in contexts.turns for value in behaviour[turn.trajectory_id, turn.turn]]
    if len(sampled) == contexts.num_tokens:
        values["kl"] = float(np.mean(sampled)) + values["cross_entropy"]
    return {f"teacher/{name}": value for name, value in values.items()}
