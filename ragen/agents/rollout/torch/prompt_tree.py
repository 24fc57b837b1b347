"""Prompts as a prefix tree: tokens with the same prefix are computed once.

The prompts of a shard have much in common: the system message, the initial state of a group, a state that two members
have both reached. A token's hidden state depends only on the tokens before it, so every distinct prefix is one node,
and only nodes go through the matrix products. This also packs rows of different lengths without padding. Attention
works on rows, which look up their tokens by node.

    a b c d         nodes  0:a 1:b 2:c 3:d 4:e 5:f          nodes_UT  0 1 2 3
    a b e f                                                          0 1 4 5
    a b                                                              0 1 . .     (. = 0, ignored)

Suffixes: U distinct rows, T tokens of the longest, N nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class PromptTree:
    """New tokens of the distinct rows of a batch.

    Attributes:
        tokens: Token of each node. int64 [N]
        positions: Its position in the context, counting carried-over tokens. int64 [N]; or time, row and column, int64
            [3, N] (`ragen.agents.vision.positions`).
        places: First occurrence of each node: row * T + column. int64 [N]
        nodes: Node of each row's tokens; 0 after a row's end. int64 [U, T]
        lengths: Number of new tokens of each row, at least 1. int64 [U]
    """

    tokens: np.ndarray
    positions: np.ndarray
    places: np.ndarray
    nodes: np.ndarray
    lengths: np.ndarray

    @property
    def last_nodes(self) -> np.ndarray:
        """Node of each row's last token. int64 [U]"""
        return self.nodes[np.arange(len(self.lengths)), self.lengths - 1]


def grow_prompt_tree(prompts: Sequence[Sequence[int]], num_carried_U: np.ndarray) -> PromptTree:
    """Merge rows with common prefixes.

    Args:
        prompts: New tokens of each row; none is empty.
        num_carried_U: Number of tokens that each row already has in the cache. Only rows without any can share nodes:
            the others follow different contexts.
    """
    lengths_U = np.fromiter(map(len, prompts), dtype=np.int64, count=len(prompts))
    width = int(lengths_U.max())
    is_token_UT = np.arange(width) < lengths_U[:, None]
    tokens_UT = np.zeros((len(prompts), width), dtype=np.int64)
    tokens_UT[is_token_UT] = np.concatenate([np.asarray(prompt, dtype=np.int64) for prompt in prompts])
    vocabulary = int(tokens_UT.max()) + 1

    nodes_UT = np.zeros_like(tokens_UT)
    places: list[np.ndarray] = []
    num_nodes = 0
    parents_U = np.where(num_carried_U > 0, np.arange(1, len(prompts) + 1), 0)
    for column in range(width):
        rows = np.flatnonzero(is_token_UT[:, column])
        beginnings = parents_U[rows] * vocabulary + tokens_UT[rows, column]
        distinct, first, which = np.unique(beginnings, return_index=True, return_inverse=True)
        parents_U[rows] = nodes_UT[rows, column] = num_nodes + which
        places.append(rows[first] * width + column)
        num_nodes += len(distinct)
        if len(distinct) == len(rows):  # all rows have diverged for good
            rest_rows, rest_columns = np.nonzero(is_token_UT[:, column + 1 :])
            rest_columns += column + 1
            nodes_UT[rest_rows, rest_columns] = num_nodes + np.arange(len(rest_rows))
            places.append(rest_rows * width + rest_columns)
            break
    places_N = np.concatenate(places)
    return PromptTree(
        tokens=tokens_UT.ravel()[places_N],
        positions=num_carried_U[places_N // width] + places_N % width,
        places=places_N,
        nodes=nodes_UT,
        lengths=lengths_U,
    )
