"""Prompts as a tree: no token is lost or computed twice, and rows of different contexts share nothing."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.agents.rollout.torch.prompt_tree import grow_prompt_tree

PROMPTS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), min_size=1, max_size=12)


def test_different_contexts_share_nothing():
    tree = grow_prompt_tree([[1, 2], [1, 2], [1, 2]], np.array([5, 0, 7]))
    assert len(tree.tokens) == 6
    assert tree.positions[tree.nodes].tolist() == [[5, 6], [0, 1], [7, 8]]


@given(PROMPTS)
def test_shared_prefix_is_one_node(prompts):
    tree = grow_prompt_tree(prompts, np.zeros(len(prompts), dtype=np.int64))
    for prompt, nodes in zip(prompts, tree.nodes, strict=True):
        assert tree.tokens[nodes[: len(prompt)]].tolist() == prompt
        assert tree.positions[nodes[: len(prompt)]].tolist() == list(range(len(prompt)))
    beginnings = {tuple(prompt[:end]) for prompt in prompts for end in range(1, len(prompt) + 1)}
    assert len(tree.tokens) == len(beginnings)
    # each node's place, row * T + column, is an occurrence of that node
    assert tree.nodes.ravel()[tree.places].tolist() == list(range(len(tree.tokens)))
