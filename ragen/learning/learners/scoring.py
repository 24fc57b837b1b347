"""Scoring: log-probabilities and entropies of response tokens under a model, by forward passes over micro-batches.

The output layer runs at the positions that predict a response token and nowhere else: with prompts of half a sequence
that halves the largest matrix of a pass.

Legend: S segments of a micro-batch, T tokens, M response tokens of it, V vocabulary, H hidden size, N response tokens
of the update.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from starpo.ragen.core.errors import PolicyError
from starpo.ragen.learning.learners.batches import MicroBatch
from starpo.ragen.learning.learners.data_parallel import DataParallelGroup, SingleProcess
from starpo.ragen.learning.learners.micro_batches import MicroBatchRunner
from starpo.ragen.learning.objectives.losses import entropy

Logits = Callable[[MicroBatch], Tensor]
"""Logits at every position that predicts a response token, float32 [M, V]; `ResponseLogits`, or what stands for it."""


class ResponseLogits(nn.Module):
    """A causal language model that is asked for logits at response positions only."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Wrap.

        Args:
            model: Whose logits are a linear map of its last hidden state (`check_output_layer`).
        """
        super().__init__()
        self.model = model

    def forward(self, batch: MicroBatch) -> Tensor:
        """Logits at every position that predicts a response token, float32 [M, V]."""
        return self.model.get_output_embeddings()(hidden_states(self.model.base_model, batch)).float()


@dataclass(frozen=True)
class Scores:
    """What a policy makes of the tokens of an update, on the CPU.

    Attributes:
        logprobs_N: Of each response token, nats. float32
        entropy_N: Of the distribution that it was drawn from, nats. float32
    """

    logprobs_N: Tensor
    entropy_N: Tensor


def response_logprobs(logits: Logits, batch: MicroBatch, temperature: float) -> Tensor:
    """Normalised log-probabilities at every position that predicts a response token.

    Args:
        logits: Of a policy.
        batch: Padded on the right; with causal attention that needs no mask.
        temperature: Divides the logits; 0 stands for 1, as for behaviour log-probs.

    Returns:
        float32 [M, V]
    """
    return torch.log_softmax(logits(batch) / (temperature or 1.0), dim=-1)


def chosen(logprobs_MV: Tensor, batch: MicroBatch) -> Tensor:
    """Log-probabilities of the response tokens themselves, [M]."""
    return logprobs_MV.gather(1, batch.target_M[:, None])[:, 0]


def hidden_states(backbone: nn.Module, batch: MicroBatch) -> Tensor:
    """Last hidden states at the positions that predict a response token, [M, H]."""
    hidden_STH = backbone(input_ids=batch.token_ids_ST, use_cache=False).last_hidden_state
    return hidden_STH.flatten(0, 1).index_select(0, batch.predictor_M)


def score(
    logits: Logits,
    batches: Sequence[MicroBatch],
    num_tokens: int,
    temperature: float,
    runner: MicroBatchRunner,
    dp_group: DataParallelGroup | None = None,
) -> Scores:
    """Score all response tokens of an update.

    Args:
        logits: Of the policy, or of a reference.
        batches: Those of all ranks of the group hold every token once.
        num_tokens: N.
        temperature: The rollout's.
        runner: How the forward passes are run.
        dp_group: Who has the other micro-batches. None: nobody, all are here.
    """
    dp_group = dp_group or SingleProcess()

    @torch.no_grad()
    def of_batch(batch: MicroBatch) -> tuple[Tensor, Tensor]:
        logprobs_MV = response_logprobs(logits, batch, temperature)
        return chosen(logprobs_MV, batch), entropy(logprobs_MV)

    logprobs_N, entropy_N = torch.zeros(num_tokens), torch.zeros(num_tokens)
    for batch, (logprobs_M, entropy_M) in zip(batches, runner.run(of_batch, batches), strict=True):
        index_M = batch.token_M.cpu()
        logprobs_N[index_M] = logprobs_M.cpu()
        entropy_N[index_M] = entropy_M.cpu()
    return Scores(dp_group.sum(logprobs_N), dp_group.sum(entropy_N))


@torch.no_grad()
def check_output_layer(model: PreTrainedModel) -> None:
    """Make sure that logits are the output layer applied to the last hidden state, as scoring takes for granted.

    Raises:
        PolicyError: If the model scales, caps or otherwise changes its logits.
    """
    output = model.get_output_embeddings()
    token_ids = torch.arange(4, device=model.device)[None] % model.config.vocab_size
    if output is not None:
        ours = output(model.base_model(input_ids=token_ids, use_cache=False).last_hidden_state)
        if torch.allclose(ours, model(input_ids=token_ids, use_cache=False).logits, atol=1e-4, rtol=1e-4):
            return
    raise PolicyError(
        f"{type(model).__name__} does not get its logits from its last hidden state by a linear map alone (it caps or "
        "scales them), so its log-probabilities cannot be computed at response positions only; choose another model"
    )
