"""Counter-based seeds: every random number in a run is a function of the run's seed and of its purpose.

No global random state is read anywhere. A seed is derived by hashing a path of names and numbers, so it is the same in
every process, on every machine and in any order of calls, and resuming a run cannot repeat or skip one.

    run seed --(iteration, group)--> `ragen.envs.initial_states` --(member)--> dynamics_seed, sampling_seed
"""

import hashlib
import random
import threading

import numpy as np

_THREAD = threading.local()
_ZEROS = np.zeros(4, dtype=np.uint64)
_SEED_BITS = 63  # fits a signed 64-bit integer, hence an Arrow int64 column and every library's seed


def derive_seed(*path: str | int) -> int:
    """Hash a path such as `(seed, "rollout", iteration, group)` to a seed.

    Args:
        path: Names and integers. `("a", 1)` and `("a1",)` give different seeds.

    Returns:
        An integer in [0, 2**63).
    """
    text = "/".join(f"{type(part).__name__[0]}{len(str(part))}:{part}" for part in path)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - _SEED_BITS)


def dynamics_seed(environment_seed: int, member: int) -> int:
    """Seed of the randomness in one member's dynamics (slips, pay-outs)."""
    return derive_seed(environment_seed, "dynamics", member)


def sampling_seed(environment_seed: int, member: int) -> int:
    """Seed of the tokens that one member samples."""
    return derive_seed(environment_seed, "sampling", member)


def python_random(*path: str | int) -> random.Random:
    """Return a separate `random.Random` for one purpose."""
    return random.Random(derive_seed(*path))


def token_uniforms(seed: int, turn: int, count: int) -> np.ndarray:
    """Return the uniform numbers that select the tokens of one turn by inverse transform sampling.

    They depend only on the trajectory's sampling seed and the turn, so a trajectory samples the same tokens whatever
    else is in its batch.

    Returns:
        float64 array [count] in [0, 1).
    """
    generator = _philox()
    generator.state = {  # that of a new generator with this key; setting it takes a quarter of the time of creating one
        "bit_generator": "Philox",
        "state": {"counter": _ZEROS, "key": np.array([seed, turn], dtype=np.uint64)},
        "buffer": _ZEROS,
        "buffer_pos": 4,
        "has_uint32": 0,
        "uinteger": 0,
    }
    return (generator.random_raw(count) >> np.uint64(11)) * 2.0**-53  # as numpy converts bits to float64


def _philox() -> np.random.Philox:
    """Return the thread's generator, in an arbitrary state."""
    if not hasattr(_THREAD, "philox"):
        _THREAD.philox = np.random.Philox(key=0)
    return _THREAD.philox
