"""Code inside each of vLLM's workers: replaces the current weights with a checkpoint's, without a restart.

Mixed into vLLM's worker class (`worker_extension_cls`) and called through `collective_rpc`, so that every device of a
tensor-parallel engine reads the weights itself and keeps its shard.
"""

from typing import Any

from torch import nn

from starpo.ragen.agents.rollout.weights import read_weights


class CheckpointWeights:
    """Additional methods of vLLM's worker."""

    def load_checkpoint_weights(self, folder: str, should_merge: bool) -> None:
        """Read a policy's weights.

        Args:
            folder: In Hugging Face's layout. Other safetensors in it (optimiser, critic) are ignored.
            should_merge: Merge the folder's LoRA adapter into the weights; otherwise ignore it.
        """
        worker: Any = self
        weights = read_weights(folder, should_merge=should_merge)
        worker.reload_weights(weights_iterator=iter(weights.items()))
        tie_output_layer(worker.model_runner.get_model())


def tie_output_layer(model: nn.Module) -> None:
    """Tie the output layer to the input embeddings again, if the model ties them.

    vLLM reloads embeddings into a new tensor; an output layer that is tied to them silently keeps the old one, and on
    the CPU also a packed copy of it.
    """
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
    from vllm.platforms import current_platform

    if not getattr(getattr(model, "config", None), "tie_word_embeddings", False):
        return
    parts = [part for part in model.modules() if isinstance(part, VocabParallelEmbedding)]
    heads = [part for part in parts if isinstance(part, ParallelLMHead)]
    (embeddings,) = [part for part in parts if part not in heads]
    for head in heads:
        head.weight = embeddings.weight
        if current_platform.is_cpu():
            dispatch_cpu_unquantized_gemm(head, remove_weight=False)
