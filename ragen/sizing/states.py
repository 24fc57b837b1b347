"""Memory of what a learner holds of a model: weights, optimiser states and gradients, part by part.

trained parameters, sharding --states_of--> States
"""

from dataclasses import dataclass

from starpo.ragen.config.learner import Sharding
from starpo.ragen.sizing.architecture import Architecture
from starpo.ragen.sizing.memory import DType, MemoryItem, optimiser_bytes, zero_bytes


@dataclass(frozen=True)
class States:
    """What a rank holds of a model.

    Attributes:
        held: Weights and optimiser states.
        gradients: One set of gradients.
        host: Optimiser states offloaded to host memory; none if nothing is.
    """

    held: list[MemoryItem]
    gradients: MemoryItem
    host: list[MemoryItem]


def states_of(
    name: str, num_trained: int, optimiser: str, architecture: Architecture, sharding: Sharding, dtype: DType
) -> States:
    """Estimate the states of a model per rank, frozen weights aside.

    Args:
        name: Name of the model: 'policy', or that of a companion.
        num_trained: T, number of trained parameters.
        optimiser: 'adamw' or 'muon'.
        architecture: Architecture of the model.
        sharding: How the states are distributed over ranks.
        dtype: Dtype of the arithmetic, and of weights and gradients under ZeRO.
    """
    stage, ranks = sharding.stage, sharding.num_ranks
    if stage:
        cut = zero_bytes(num_trained, stage, ranks, dtype, is_offloaded=sharding.is_offloaded)
        how = f"ZeRO {stage} over {ranks}, T = {num_trained:,}"
        held = [MemoryItem(f"{name}: {what}", cut[what], how) for what in ("weights", "optimiser")]
        offloaded = MemoryItem(f"{name}: optimiser", cut["host"], f"offloaded, 12 T / {ranks}, T = {num_trained:,}")
        gradients = MemoryItem(f"{name}: gradients", cut["gradients"], how)
        return States(held, gradients, [offloaded] if cut["host"] else [])
    states = optimiser_bytes(architecture, num_trained, optimiser)
    held = [
        MemoryItem(f"{name}: weights", 4.0 * num_trained, f"4 T, T = {num_trained:,}"),
        MemoryItem(f"{name}: optimiser", states, f"{optimiser}, {states / num_trained:.2g} T"),
    ]
    return States(held, MemoryItem(f"{name}: gradients", 4.0 * num_trained, f"4 T, T = {num_trained:,}"), [])
