"""The ledger of an update: per-token statistics, reported as dataset `samples` and as metrics.

All metrics are a function of the update's inputs; timings, which are not, are reported separately.
Legend: N response tokens of the update, B trajectories, M response tokens of a micro-batch.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.learners.data.trajectories import Trajectory
from starpo.ragen.learning.learners.data_parallel import DataParallelGroup
from starpo.schemas.datasets import SAMPLES


class Ledger:
    """Accumulates per-token sums over the passes of an update, and lists over its optimiser steps."""

    def __init__(self, tokens: ResponseTokens, device: torch.device) -> None:
        self._tokens = tokens
        self._ratio_N, self._low_N, self._high_N, self._size_N, self._visits_N = torch.zeros(
            (5, len(tokens)), dtype=torch.float64, device=device
        )
        self._largest_ratio_N = torch.zeros(len(tokens), device=device)
        self.steps: dict[str, list[float]] = {}

    def note_tokens(
        self,
        token_M: Tensor,
        has_loss_M: Tensor,
        ratio_M: Tensor,
        is_low_M: Tensor,
        is_high_M: Tensor,
        size_M: Tensor,
    ) -> None:
        """Record the statistics of a micro-batch; thread-safe, because no token is in two micro-batches.

        Args:
            token_M: Indices of its tokens.
            has_loss_M: Tokens with a loss; the others are not recorded. Selecting them would wait for a GPU.
            ratio_M: Probability ratio of the policy to the policy that `ratio_to` names, as clipped (`update.ratio`).
            is_low_M: Clipped at the lower bound.
            is_high_M: Clipped at the upper bound.
            size_M: Absolute weighted surrogate terms of the policy loss.
        """
        ratio_M, size_M = (torch.where(has_loss_M, values_M.detach(), 0) for values_M in (ratio_M, size_M))
        self._ratio_N[token_M] += ratio_M
        self._low_N[token_M] += (is_low_M & has_loss_M).double()
        self._high_N[token_M] += (is_high_M & has_loss_M).double()
        self._size_N[token_M] += size_M
        self._visits_N[token_M] += has_loss_M.double()
        self._largest_ratio_N[token_M] = torch.maximum(self._largest_ratio_N[token_M], ratio_M.float())

    def gather(self, dp_group: DataParallelGroup) -> None:
        """Reduce the token statistics over ranks; call once, after all steps."""
        sums = (self._ratio_N, self._low_N, self._high_N, self._size_N, self._visits_N)
        self._ratio_N, self._low_N, self._high_N, self._size_N, self._visits_N = dp_group.sum(torch.stack(sums))
        self._largest_ratio_N = dp_group.largest(self._largest_ratio_N)

    def note_step(self, name: str, value: float) -> None:
        """Record a number of an optimiser step."""
        self.steps.setdefault(name, []).append(value)

    def step_metrics(self) -> dict[str, float]:
        """Mean over steps of every recorded number; for gradient norms also the maximum."""
        means = {f"update/{name}": float(np.mean(values)) for name, values in self.steps.items()}
        largest = {f"update/{n}_max": max(values) for n, values in self.steps.items() if n.endswith("gradient_norm")}
        return means | largest

    def token_metrics(self) -> dict[str, float]:
        """Clip fractions and ratios over all tokens and passes; empty if the policy took no step."""
        visits = float(self._visits_N.sum())
        if not visits:
            return {}
        low, high = float(self._low_N.sum()) / visits, float(self._high_N.sum()) / visits
        return {
            "update/clip_fraction": low + high,
            "update/clip_fraction_low": low,
            "update/clip_fraction_high": high,
            "update/ratio_mean": float(self._ratio_N.sum()) / visits,
            "update/ratio_max": float(self._largest_ratio_N.max()),
        }

    def samples(
        self,
        trajectories: Sequence[Trajectory],
        advantages_N: Tensor,
        entropy_N: Tensor,
        old_behaviour_gap_N: Tensor,
        kl_behaviour_N: Tensor,
        kl_reference_N: Tensor | None,
    ) -> pa.Table:
        """Build dataset `samples`, one row per trajectory in the order given.

        Ratios and clip fractions are means over the tokens with a loss, everything else over all response tokens. A
        trajectory without response tokens took no part in the update: its row has zeros and a ratio of 1. If it has no
        token with a loss, or the policy took no step (critic warm-up), its ratio is 1, its clip fraction and loss share
        are 0. Where scores are NaN, the trajectory was not scored, and they are null.
        """
        tokens = self._tokens
        lengths_B = tokens.lengths_B

        def mean(values_N: Tensor) -> Tensor:
            return tokens.sums(values_N.cpu()) / lengths_B.clamp(min=1)

        visits_N = self._visits_N.cpu()
        passes_N = visits_N.clamp(min=1)
        num_visited_B = tokens.sums(visits_N > 0)

        def mean_over_visited(sums_N: Tensor) -> Tensor:
            return tokens.sums(sums_N.cpu() / passes_N) / num_visited_B.clamp(min=1)

        size_B = tokens.sums(self._size_N.cpu())
        gap_B = torch.zeros(len(lengths_B)).scatter_reduce_(0, tokens.trajectory_N, old_behaviour_gap_N, "amax")
        columns: dict[str, Tensor | list] = {
            "trajectory_id": [trajectory.trajectory_id for trajectory in trajectories],
            "group_id": [trajectory.group_id for trajectory in trajectories],
            "num_tokens": lengths_B,
            "trajectory_return": [trajectory.trajectory_return for trajectory in trajectories],
            "advantage": mean(advantages_N),
            "mean_ratio": torch.where(num_visited_B > 0, mean_over_visited(self._ratio_N), 1),
            "clip_fraction": mean_over_visited(self._low_N + self._high_N),
            "kl_behaviour": mean(kl_behaviour_N),
            "kl_reference": [None] * len(lengths_B) if kl_reference_N is None else mean(kl_reference_N),
            "entropy": mean(entropy_N),
            "old_behaviour_gap": gap_B,
            "loss_share": size_B / size_B.sum() if size_B.sum() > 0 else torch.zeros_like(size_B),
        }
        arrays = [
            pa.array(c.numpy() if isinstance(c, Tensor) else c, from_pandas=column.nullable).cast(column.type)
            for c, column in ((columns[column.name], column) for column in SAMPLES.columns)
        ]
        return pa.Table.from_arrays(arrays, schema=SAMPLES.schema)

    def means(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return of each token its passes with a loss, and over these its mean ratio (0 without) and clipped share."""
        visits_N, ratio_N, clipped_N = (n.cpu() for n in (self._visits_N, self._ratio_N, self._low_N + self._high_N))
        return visits_N, ratio_N / visits_N.clamp(min=1), clipped_N / visits_N.clamp(min=1)
