"""Log-probs of stored responses under a teacher that is loaded here, and what is stored and measured of any teacher's.

    folder -> LoadedTeacher
    turns -> hints -> contexts -> micro-batches with shared prefixes -> teacher_logprobs, metrics

The passes are those with which an update scores tokens (ADR 36), so a teacher like the policy costs as much as one of
the two scorings of an update.
Legend: N response tokens of the rollout, M of a micro-batch.
"""

import time
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
from starpo.ragen.learning.learners.models.scoring import ResponseScores, check_output_layer, row_tokens
from starpo.schemas.datasets import TEACHER_LOGPROBS

MAX_NATS = 1e4
"""A log-prob below minus this is none: the weights are damaged."""


@dataclass(frozen=True)
class TeacherScores:
    """What a teacher says of all response tokens, on the CPU.

    Attributes:
        logprobs_N: Their log-probs, nats. float32
        is_mode_N: Whether each is the token that the teacher finds most probable. bool
    """

    logprobs_N: Tensor
    is_mode_N: Tensor


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
        self._scorer = ResponseScores(model.to(device.kind).requires_grad_(False))  # type: ignore[arg-type]
        self._runner = MicroBatchRunner(device, Runtime.current().threads, dtype)

    def score(
        self,
        contexts: TeacherContexts,
        temperature: float,
        token_budget: int,
        limit_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> TeacherScores:
        """Score all response tokens.

        Args:
            contexts: At least one.
            temperature: Temperature of the rollout, at which the policy's log-probs are.
            token_budget: Tokens of a micro-batch.
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
        began = time.monotonic()
        batches = micro_batches(contexts, np.arange(len(contexts.segments)), token_budget, row_tokens=self._row_tokens)

        @torch.no_grad()
        def of_batch(batch: MicroBatch) -> tuple[Tensor, Tensor]:
            spent = time.monotonic() - began
            if limit_s is not None and spent > limit_s:
                raise LearnerError(
                    f"the teacher has taken {spent:.1f} s for this rollout and has not finished, and teacher.limit_s = "
                    f"{limit_s:g}: raise the limit, or take a smaller teacher"
                )
            logprob_M, mode_M = self._scorer(batch.to(self._runner.device), temperature, ("logprob", "mode"))
            return logprob_M.float(), logprob_M >= mode_M

        logprobs_N = torch.zeros(contexts.num_tokens)
        is_mode_N = torch.zeros(contexts.num_tokens, dtype=torch.bool)
        runner = self._runner.reporting(on_progress)
        runner.expect(len(batches))
        with runner.alone():
            for batch, (logprob_M, is_mode_M) in zip(batches, runner.run(of_batch, batches), strict=True):
                logprobs_N[batch.token_M] = logprob_M.cpu()
                is_mode_N[batch.token_M] = is_mode_M.cpu()
        if not bool((logprobs_N > -MAX_NATS).all() & (logprobs_N <= 0).all()):
            raise LearnerError(
                "the teacher gives a token a log-probability that is not finite: its weights are damaged, or overflow "
                "in this dtype; fetch them again, or set teacher.dtype = 'float32'"
            )
        return TeacherScores(logprobs_N, is_mode_N)


def table(contexts: TeacherContexts, scored: TeacherScores) -> pa.Table:
    """Return dataset `teacher_logprobs`, a row per turn with a response."""
    turns = contexts.turns
    offsets = np.append(0, np.cumsum([turn.num_tokens for turn in turns])).astype(np.int32)
    schema = TEACHER_LOGPROBS.schema

    def lists(name: str, values_N: Tensor) -> pa.Array:
        kind = schema.field(name).type
        return pa.ListArray.from_arrays(offsets, pa.array(values_N.numpy()).cast(kind.value_type), type=kind)

    return pa.table(
        {
            "trajectory_id": [turn.trajectory_id for turn in turns],
            "group_id": [turn.group_id for turn in turns],
            "turn": pa.array([turn.turn for turn in turns], pa.int32()),
            "logprobs": lists("logprobs", scored.logprobs_N),
            "is_mode": lists("is_mode", scored.is_mode_N),
            "num_hint_tokens": pa.array([turn.num_hint_tokens for turn in turns], pa.int32()),
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
        `teacher/hint_tokens_mean`: tokens of a turn's hint.
    """
    values = {
        "agreement": float(scored.is_mode_N.double().mean()),
        "cross_entropy": -float(scored.logprobs_N.double().mean()),
        "hint_tokens_mean": float(np.mean([turn.num_hint_tokens for turn in contexts.turns])),
    }
    columns = (turns[name].to_pylist() for name in ("trajectory_id", "turn", "behaviour_logprobs"))
    behaviour = {(trajectory_id, turn): logprobs for trajectory_id, turn, logprobs in zip(*columns, strict=True)}
    sampled = [value for turn in contexts.turns for value in behaviour[turn.trajectory_id, turn.turn]]
    if len(sampled) == contexts.num_tokens:
        values["kl"] = float(np.mean(sampled)) + values["cross_entropy"]
    return {f"teacher/{name}": value for name, value in values.items()}
