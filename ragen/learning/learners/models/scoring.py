"""Scoring: log-probabilities and entropies of response tokens under a model, by forward passes over micro-batches.

The output layer and its softmax run only at the distinct positions that predict response tokens.

Legend: S rows of a micro-batch, T tokens of a row, P distinct positions that predict response tokens, C of them at a
time, M response tokens of the micro-batch, V vocabulary, H hidden size, N response tokens of the update.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedConfig, PreTrainedModel

from starpo.ragen.agents.vision.embeddings import model_inputs
from starpo.ragen.core.errors import PolicyError
from starpo.ragen.learning.learners.data.batches import MicroBatch
from starpo.ragen.learning.learners.data_parallel import DataParallelGroup, SingleProcess
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.objectives.losses import entropy

Quantity = Literal["logprob", "entropy", "collision", "mode"]
"""Quantity of a response token: its log-probability, nats; or, of the distribution at its position, the entropy, nats,
the sum of squared probabilities ('collision'), or the largest log-probability, nats ('mode', without a gradient)."""

Scorer = Callable[[MicroBatch, float, Sequence[Quantity]], tuple[Tensor, ...]]
"""A micro-batch, the rollout's temperature and quantities -> each quantity for its response tokens, float32 [M]:
`ResponseScores` or a stand-in."""

_LOGITS_AT_A_TIME = 2**25
"""128 MiB in float32; the softmax and its gradient hold a few times as much on top."""


class ResponseScores(nn.Module):
    """Causal language model that scores response tokens.

        hidden states [P, H] -> output layer, softmax: log-probabilities [C, V], C positions at a time -> quantities [M]

    If a micro-batch has more logits than `_LOGITS_AT_A_TIME`, they are computed for C positions at a time and discarded
    after use, then recomputed for the gradient. This costs one more pass of the output layer; in return memory does not
    grow with the micro-batch. It would take 16 to 20 bytes per logit, gigabytes with vocabularies of a hundred thousand
    tokens.
    """

    def __init__(self, model: PreTrainedModel, *, is_cut_up: bool = False) -> None:
        """Wrap a model.

        Args:
            model: Model whose logits are a linear map of its last hidden state (`check_output_layer`).
            is_cut_up: Whether its weights are sharded over ranks, which must then gather them equally often. The output
                layer then runs once per micro-batch, for all positions.
        """
        super().__init__()
        self.model = model
        self._is_cut_up = is_cut_up

    def forward(
        self, batch: MicroBatch, temperature: float, quantities: Sequence[Quantity] = ("logprob",)
    ) -> tuple[Tensor, ...]:
        """Compute quantities of the response tokens of a micro-batch.

        Args:
            batch: The micro-batch.
            temperature: Divides the logits; 0 stands for 1, as for behaviour log-probs.
            quantities: Quantities to compute.

        Returns:
            The quantities in this order, [M] each; float32, or float64 for a float64 model.
        """
        hidden_PH = hidden_states(self.model.base_model, batch)
        given = temperature or 1.0, quantities
        num_at_a_time = max(1, _LOGITS_AT_A_TIME // int(self.model.config.get_text_config().vocab_size))
        if self._is_cut_up or len(hidden_PH) <= num_at_a_time:
            return self._score(hidden_PH, batch.prediction_M, batch.target_M, *given)
        part_M = batch.prediction_M // num_at_a_time
        order_M = part_M.argsort(stable=True)
        hidden_parts = hidden_PH.split(num_at_a_time)
        sizes = torch.bincount(part_M, minlength=len(hidden_parts)).tolist()
        positions, targets = (
            values_M[order_M].split(sizes) for values_M in (batch.prediction_M % num_at_a_time, batch.target_M)
        )
        parts = [
            checkpoint(self._score, *part, *given, use_reentrant=False)
            for part in zip(hidden_parts, positions, targets, strict=True)
        ]
        place_M = order_M.argsort()
        return tuple(torch.cat(values).index_select(0, place_M) for values in zip(*parts, strict=True))

    def _score(
        self,
        hidden_CH: Tensor,
        prediction_M: Tensor,
        target_M: Tensor,
        temperature: float,
        quantities: Sequence[Quantity],
    ) -> tuple[Tensor, ...]:
        """Score tokens predicted at C positions; `prediction_M` are indices into these positions."""
        logits_CV = self.model.get_output_embeddings()(hidden_CH)
        logits_CV = logits_CV.to(torch.promote_types(logits_CV.dtype, torch.float32))
        logprobs_CV = torch.log_softmax(logits_CV if temperature == 1.0 else logits_CV / temperature, dim=-1)
        return self._read(logprobs_CV, prediction_M, target_M, quantities)

    def _read(
        self, logprobs_CV: Tensor, prediction_M: Tensor, target_M: Tensor, quantities: Sequence[Quantity]
    ) -> tuple[Tensor, ...]:
        of_position: dict[Quantity, Callable[[Tensor], Tensor]] = {
            "entropy": entropy,
            "collision": _collision,
            "mode": _mode,
        }
        return tuple(
            logprobs_CV.flatten().index_select(0, prediction_M * logprobs_CV.shape[1] + target_M)
            if quantity == "logprob"
            else of_position[quantity](logprobs_CV).index_select(0, prediction_M)
            for quantity in quantities
        )


def network_of(model: nn.Module, *, is_cut_up: bool = False) -> tuple[nn.Module, str]:
    """Return what is called with micro-batches, and the prefix that it gives to the names of the model's parameters.

    Args:
        model: A causal language model, whose response tokens are scored; or a module that takes micro-batches itself.
        is_cut_up: As for `ResponseScores`.
    """
    return (ResponseScores(model, is_cut_up=is_cut_up), "model.") if isinstance(model, PreTrainedModel) else (model, "")


def _collision(logprobs_TV: Tensor) -> Tensor:
    """Sum of squared probabilities of each distribution, [...]."""
    return (2 * logprobs_TV).exp().sum(-1)


def _mode(logprobs_TV: Tensor) -> Tensor:
    """Largest log-probability of each distribution, [...]; no gradient."""
    return logprobs_TV.detach().amax(-1)


@dataclass(frozen=True)
class Scores:
    """Scores of the response tokens of an update under a policy, on the CPU.

    Attributes:
        logprobs_N: Log-probability of each response token, nats. float32
        entropy_N: Entropy of the distribution at its position, nats. float32
        collision_N: Sum of squared probabilities of that distribution. float32; None if not requested.
    """

    logprobs_N: Tensor
    entropy_N: Tensor
    collision_N: Tensor | None = None


def of_tokens(values_P: Tensor, batch: MicroBatch) -> Tensor:
    """Gather values at positions for the response tokens that they predict, [M]."""
    return values_P.index_select(0, batch.prediction_M)


def hidden_states(backbone: nn.Module, batch: MicroBatch) -> Tensor:
    """Compute the last hidden states at the positions that predict response tokens, [P, H]."""
    attention = {}
    if (sees_STT := batch.sees()) is not None:
        attention = {"attention_mask": sees_STT[:, None]}
    inputs = model_inputs(backbone, batch.token_ids_ST, batch.images, batch.position_ST, batch.end_ST)
    hidden_STH = backbone(**inputs, use_cache=False, **attention).last_hidden_state
    return hidden_STH.flatten(0, 1).index_select(0, batch.predictor_P)


def score(
    scorer: Scorer,
    batches: Sequence[MicroBatch],
    num_tokens: int,
    temperature: float,
    runner: MicroBatchRunner,
    dp_group: DataParallelGroup | None = None,
    *,
    with_collision: bool = False,
) -> Scores:
    """Score all response tokens of an update.

    Args:
        scorer: The policy or a reference.
        batches: This process's micro-batches; those of all ranks together hold every token once.
        num_tokens: N.
        temperature: Temperature of the rollout.
        runner: Runs the forward passes.
        dp_group: Data-parallel group that holds the other micro-batches; None if this process has all of them.
        with_collision: Also compute `collision_N`, at the cost of one more pass over the distributions.
    """
    dp_group = dp_group or SingleProcess()

    quantities: tuple[Quantity, ...] = ("logprob", "entropy", "collision") if with_collision else ("logprob", "entropy")

    @torch.no_grad()
    def of_batch(batch: MicroBatch) -> tuple[Tensor, ...]:
        return scorer(batch, temperature, quantities)

    columns = [torch.zeros(num_tokens, device=runner.device) for _ in quantities]
    for batch, tensors in zip(batches, runner.run(of_batch, batches), strict=True):
        for values_N, values_M in zip(columns, tensors, strict=True):
            values_N[batch.token_M] = values_M.to(values_N.dtype)
    return Scores(*(dp_group.sum(values_N.cpu()) for values_N in columns))


@torch.no_grad()
def check_output_layer(model: PreTrainedModel) -> None:
    """Check that logits are the output layer applied to the last hidden state, as scoring assumes.

    Raises:
        PolicyError: If the model scales, caps or otherwise changes its logits.
    """
    output = model.get_output_embeddings()
    token_ids = torch.arange(4, device=model.device)[None] % model.config.get_text_config().vocab_size
    if output is not None:
        ours = output(model.base_model(input_ids=token_ids, use_cache=False).last_hidden_state)
        if torch.allclose(ours, model(input_ids=token_ids, use_cache=False).logits, atol=1e-4, rtol=1e-4):
            return
    raise PolicyError(
        f"{type(model).__name__} computes its logits from its last hidden state by more than a linear map (it caps or "
        "scales them), so its log-probabilities cannot be computed at response positions only; choose another model"
    )


def row_tokens(model: PreTrainedModel) -> int:
    """Return the maximum tokens of a row in which segments share a prefix; 0 if the model supports identical ones only.

    Per token, attention costs 4 H operations for each token of its row, and the weight matrices about 24 H^2. With rows
    of H tokens (the hidden size), attention thus costs a sixth of the matrices.
    """
    return int(model.config.get_text_config().hidden_size) if can_share_prefixes(model) else 0


@torch.no_grad()
def can_share_prefixes(model: PreTrainedModel) -> bool:
    """Whether the model honours an arbitrary attention mask, so that segments can share a prefix (`prefix_rows`).

    Tested on a row of two branches, `a b c` and `a d`. Recurrent layers and attention kernels without masks do not.
    Neither does sliding-window attention; the row is too short to show that, so it is read from the configuration.

    With and without a mask, an accelerator runs different kernels, which round differently. A norm of the difference
    below the root of the precision (9% in bfloat16) is rounding: 24 layers in bfloat16 differ by 1.3%, and attention
    that takes the mask wrongly by 14% or more, even with few small weights.
    """
    if _has_windows(model.config.get_text_config()):
        return False
    a, b, c, d = (number % model.config.get_text_config().vocab_size for number in (1, 2, 3, 4))
    device = model.device
    sees = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 1]], dtype=torch.bool, device=device)
    row = {
        "input_ids": torch.tensor([[a, b, c, d]], device=device),
        "position_ids": torch.tensor([[0, 1, 2, 1]], device=device),
        "attention_mask": sees[None, None],
    }
    try:
        shared = model.base_model(**row, use_cache=False).last_hidden_state[0]
    except (ValueError, TypeError, RuntimeError, IndexError):  # raised by models that reject a custom mask
        return False
    one, other = (
        model.base_model(input_ids=torch.tensor([ids], device=device), use_cache=False).last_hidden_state[0]
        for ids in ([a, b, c], [a, d])
    )
    apart = torch.cat([one, other[1:]])
    return bool((shared - apart).norm() < torch.finfo(apart.dtype).eps ** 0.5 * apart.norm())


def _has_windows(config: PreTrainedConfig) -> bool:
    """Whether layers attend to a window only; transformers uses a custom mask unchanged for such layers too."""
    if set(getattr(config, "layer_types", None) or ()) - {"full_attention"}:
        return True
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    return window is not None and window < getattr(config, "max_position_embeddings", math.inf)
