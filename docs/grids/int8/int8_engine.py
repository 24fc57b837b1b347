"""The engine `torch` on weights rounded to int8, to measure what a sampler that is not the learner does to training."""

from torch import Tensor

from starpo.ragen.agents.rollout.torch.decoder import Decoder
from starpo.ragen.agents.rollout.torch.engine import TorchEngine


def rounded(weight: Tensor) -> Tensor:
    """Round each row of a matrix to multiples of its largest absolute value over 127; return vectors as they are."""
    if weight.ndim < 2:
        return weight
    step = weight.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 127
    return (weight / step).round() * step


class Int8Engine(TorchEngine):
    """`rollout.engine = "int8"`: sampling as after a quantisation to int8 with a scale per row, computed in float32."""

    def _new_decoder(self, folder: str) -> Decoder:
        decoder = super()._new_decoder(folder)
        load = decoder.load_weights
        decoder.load_weights = lambda weights: load(  # type: ignore[method-assign]
            {name: rounded(weight) for name, weight in weights.items()}
        )
        return decoder
