"""The uniforms that select tokens equal numpy's, but are cheaper to make."""

import numpy as np
import pytest

from starpo.ragen.core.seeding import token_uniforms


@pytest.mark.parametrize(("seed", "turn"), [(0, 0), (7, 3), (2**63, 1)])
def test_equals_numpys_generator(seed: int, turn: int) -> None:
    generator = np.random.Generator(np.random.Philox(key=np.array([seed, turn], dtype=np.uint64)))
    np.testing.assert_array_equal(token_uniforms(seed, turn, 33), generator.random(33))
