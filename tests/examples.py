"""A small valid example of every dataset, for tests and benchmarks.

turns, siblings, rewards, selection, curriculum, samples, trained_tokens, teacher_logprobs, credits,
credit_estimates, metrics, episodes, episode_turns, images, turn_images: `example(kind)`
turns of any length: `example_turns(...)`
any folder, stored: `put_folder(...)`
"""

import shutil

import numpy as np
import pyarrow as pa

from starpo.ragen.agents.vision.image import Image
from starpo.ragen.store import Facts, Store
from starpo.schemas.datasets import DATASETS
from starpo.schemas.manifest import Manifest

GROUP_SIZE = 4
TURNS_EACH = 5

_PROMPT_TOKENS = 24
_RESPONSE_TOKENS = 17
_ACTIONS = ["Up", "Left"]


def example(kind: str) -> pa.Table:
    """Return two groups of four trajectories of five turns, or what a stage could have made from them.

    Raises:
        KeyError: If there is no such dataset kind.
    """
    return _MAKERS[kind]()


def put_folder(store: Store, kind: str, folder: str, facts: Facts) -> Manifest:
    """Store a copy of a folder."""
    with store.new_folder() as staged:
        shutil.copytree(folder, staged, dirs_exist_ok=True)
        return store.take_folder(kind, staged, facts)


def example_turns(num_groups: int = 2, first_group: int = 0) -> pa.Table:
    """Return the turns of `num_groups` complete groups, 20 rows each, as large as those of the embedded tiny policy.

    Args:
        num_groups: Number of groups.
        first_group: Number of the first group; consecutive calls make consecutive parts of one large dataset.
    """
    rows = np.arange(num_groups * GROUP_SIZE * TURNS_EACH)
    turn, trajectory = rows % TURNS_EACH, rows // TURNS_EACH
    member, group = trajectory % GROUP_SIZE, trajectory // GROUP_SIZE + first_group
    is_last = turn == TURNS_EACH - 1
    noise = np.random.default_rng(first_group)
    group_id = [f"group-{g:08d}" for g in group]
    response_ids = _lists(noise.integers(5, 347, (len(rows), _RESPONSE_TOKENS)), pa.int32())
    columns = {
        "trajectory_id": [f"{g}/{m:04d}" for g, m in zip(group_id, member, strict=True)],
        "group_id": group_id,
        "env": ["sokoban"] * len(rows),
        "env_seed": group + 7,
        "dynamics_seed": trajectory,
        "sampling_seed": trajectory + 1,
        "member": member,
        "turn": turn,
        "observation": [f"######\n#_P__#\n#_X__#\n#__O_#\n######\n{row % 997}" for row in rows],
        "is_context_start": turn == 0,
        "prompt_ids": _lists(noise.integers(5, 347, (len(rows), _PROMPT_TOKENS)), pa.int32()),
        "response_ids": response_ids,
        "behaviour_logprobs": _lists(-noise.random((len(rows), _RESPONSE_TOKENS)), pa.float32()),
        "origin": ["policy"] * len(rows),
        "num_candidates": [1] * len(rows),
        "num_as_good": [1] * len(rows),
        "response": ["<think>the box is below</think><answer>Up || Left</answer>"] * len(rows),
        "think": ["the box is below"] * len(rows),
        "answer": ["Up || Left"] * len(rows),
        "parsed_actions": [_ACTIONS] * len(rows),
        "executed_actions": [_ACTIONS] * len(rows),
        "action_rewards": [[-0.1, -0.1]] * len(rows),
        "action_effective": [[True, False]] * len(rows),
        "format_ok": [True] * len(rows),
        "forfeited_actions": [0] * len(rows),
        "action_cost": [-0.1] * len(rows),
        "finish_reason": ["stop"] * len(rows),
        "status": ["ok"] * len(rows),
        "terminated": is_last & (member == 0),
        "truncated": is_last & (member != 0),
        "success": is_last & (member == 0),
        "actions_left": 10 - 2 * turn,
        "initial_state_digest": [f"{g:016x}" for g in group],
        "state_digest": [f"{row:016x}" for row in rows],
        "info": ['{"effective": false}'] * len(rows),
    }
    return _table("turns", columns)


def _siblings() -> pa.Table:
    columns = {
        "trajectory_id": ["group-00000000/0000"] * 4,
        "turn": [0, 0, 1, 1],
        "candidate": [0, 1, 0, 1],
        "parent": [-1, -1, 1, 1],
        "response_ids": [[7, 8, 1], [9, 1], [7, 8, 1], [7, 8, 1]],
        "behaviour_logprobs": [[-0.5, -0.25, -0.125], [-0.75, -0.125], [-0.5, -0.25, 0.0], [-0.5, -0.25, 0.0]],
        "response": ["<answer>Up</answer>", "<answer>Left</answer>", "<answer>Up</answer>", "<answer>Up</answer>"],
        "executed_actions": [["Up"], ["Left"], ["Up"], ["Up"]],
        "score": [-0.1, 0.9, None, -0.1],
        "chosen": [False, True, False, True],
    }
    return _table("siblings", columns)


def _images() -> pa.Table:
    images = [Image(np.full((height, 2, 3), 7, np.uint8)) for height in (2, 3)]
    columns = {
        "digest": [image.digest for image in images],
        "height": [image.height for image in images],
        "width": [image.width for image in images],
        "png": [image.to_png() for image in images],
    }
    return _table("images", columns)


def _turn_images() -> pa.Table:
    one, other = _images()["digest"].to_pylist()
    columns = {
        "trajectory_id": ["group-00000000/0000"] * 3,
        "turn": [0, 1, 1],
        "position": [4, 4, 12],
        "num_tokens": [4, 4, 6],
        "image": [one, one, other],
    }
    return _table("turn_images", columns)


def _rewards() -> pa.Table:
    turns = example_turns().select(["trajectory_id", "group_id", "turn"])
    components = {
        "component_names": [["environment", "format"]] * turns.num_rows,
        "component_values": [[-0.2, 0.0]] * turns.num_rows,
        "total": [-0.2] * turns.num_rows,
        "trajectory_return": [-0.2 * TURNS_EACH] * turns.num_rows,
        "normalised_return": [0.0] * turns.num_rows,
        "is_valid": [True] * turns.num_rows,
    }
    return _table("rewards", {**turns.to_pydict(), **components})


def _selection() -> pa.Table:
    columns = {
        "group_id": ["group-00000000", "group-00000001"],
        "env": ["sokoban"] * 2,
        "env_seed": [7, 8],
        "num_trajectories": [GROUP_SIZE] * 2,
        "num_valid": [GROUP_SIZE] * 2,
        "metric": ["std"] * 2,
        "score": [0.0, 4.5],
        "return_std": [0.0, 4.5],
        "return_mean": [-1.0, 2.0],
        "return_max": [-1.0, 9.5],
        "return_min": [-1.0, -1.0],
        "success_rate": [0.0, 0.25],
        "rank": [1, 0],
        "kept": [False, True],
        "strategy": ["top_fraction"] * 2,
        "reason": ["dropped: zero variance, all 4 valid returns are -1", "kept: number 1 of 1 by std 4.547"],
    }
    return _table("selection", columns)


def _curriculum() -> pa.Table:
    columns = {
        "level": ["size-3", "size-4", "size-5"],
        "place": [0, 1, 2],
        "base_share": [0.5, 0.25, 0.25],
        "share": [0.375, 0.625, 0.0],
        "is_open": [True, True, False],
        "success": [0.875, 0.5, None],
        "recent": [[1.0, 0.75], [0.5], []],
        "num_groups": [5, 1, 0],
        "owed": [-0.25, 0.25, 0.0],
    }
    return _table("curriculum", columns)


def _samples() -> pa.Table:
    columns = {
        "trajectory_id": ["group-00000001/0000", "group-00000001/0001"],
        "group_id": ["group-00000001"] * 2,
        "num_tokens": [85, 85],
        "trajectory_return": [9.5, -1.0],
        "advantage": [1.5, -0.5],
        "mean_ratio": [1.01, 0.99],
        "clip_fraction": [0.125, 0.0],
        "kl_behaviour": [0.001, 0.002],
        "kl_reference": [None, None],
        "entropy": [0.5, 0.25],
        "old_behaviour_gap": [1e-6, 2e-6],
        "loss_share": [0.75, 0.25],
    }
    return _table("samples", columns)


def _trained_tokens() -> pa.Table:
    columns = {
        "trajectory_id": ["group-00000001/0000", "group-00000001/0001"],
        "group_id": ["group-00000001"] * 2,
        "turn": [0, 0],
        "has_loss": [[True, True], [True, False]],
        "advantages": [[1.5, 1.5], [-0.5, 0.0]],
        "ratios": [[1.0, 1.25], [0.75, 1.0]],
        "clip_fractions": [[0.0, 0.5], [0.0, 0.0]],
        "entropies": [[0.5, 0.25], []],
    }
    return _table("trained_tokens", columns)


def _teacher_logprobs() -> pa.Table:
    columns = {
        "trajectory_id": ["group-00000001/0000", "group-00000001/0001"],
        "group_id": ["group-00000001"] * 2,
        "turn": [0, 0],
        "logprobs": [[-0.25, -1.5], [-0.5, -200.0]],
        "is_mode": [[True, False], [True, False]],
        "num_hint_tokens": [5, 0],
    }
    return _table("teacher_logprobs", columns)


def _teacher_top_tokens() -> pa.Table:
    columns = {
        "trajectory_id": ["group-00000001/0000", "group-00000001/0001"],
        "group_id": ["group-00000001"] * 2,
        "turn": [0, 0],
        "token_ids": [[5, 9, 5, 7], [5, 9, 9, 5]],
        "logprobs": [[-0.25, -1.75, -0.5, -1.5], [-0.5, -1.5, -0.25, -200.0]],
    }
    return _table("teacher_top_tokens", columns)


def _credits() -> pa.Table:
    columns = {
        "trajectory_id": ["group-00000001/0000", "group-00000001/0000", "group-00000001/0001"],
        "group_id": ["group-00000001"] * 3,
        "turn": [0, 1, 0],
        "state": ["0123456789abcdef", "fedcba9876543210", "0123456789abcdef"],
        "num_continuations": [4, 2, 4],
        "num_tokens": [120, 34, 120],
        "returns": [[1.0, 0.0, 1.0, 0.0], [1.0, 1.0], [1.0, 0.0, 1.0, 0.0]],
        "success": [0.5, 1.0, 0.5],
        "value": [0.5, 1.0, 0.5],
        "value_se": [(1 / 12) ** 0.5, 0.0, (1 / 12) ** 0.5],  # sample variance 1/3, of 4
        "value_after": [1.0, 0.0, 0.0],
        "reward": [-0.25, 1.0, -1.0],
        "advantage": [0.25, 0.0, -1.5],
        "advantage_se": [(1 / 12) ** 0.5, 0.0, (1 / 12) ** 0.5],
        "solver_before": [1.0, 1.0, 1.0],
        "solver_after": [1.0, 0.0, 0.0],
    }
    return _table("credits", columns)


def _credit_estimates() -> pa.Table:
    columns = {
        "estimator": ["grpo", "grpo", "critic"],
        "trajectory_id": ["group-00000001/0000", "group-00000001/0001", "group-00000001/0000"],
        "group_id": ["group-00000001"] * 3,
        "turn": [0, 0, 0],
        "quantity": ["advantage", "advantage", "value"],
        "estimate": [0.75, -0.75, 0.25],
    }
    return _table("credit_estimates", columns)


def _metrics() -> pa.Table:
    columns = {
        "iteration": [0, 0],
        "stage": ["update", "update"],
        "name": ["update/gradient_norm", "update/entropy"],
        "value": [0.5, 1.25],
    }
    return _table("metrics", columns)


def _episodes() -> pa.Table:
    columns = {
        "cell": ["sokoban"] * 2,
        "env": ["sokoban"] * 2,
        "env_seed": [7, 8],
        "member": [0, 0],
        "temperature": [0.5, 0.5],
        "initial_state_digest": ["0123456789abcdef", "fedcba9876543210"],
        "num_turns": [1, 2],
        "num_actions": [2, 3],
        "num_response_tokens": [17, 34],
        "num_format_errors": [0, 1],
        "episode_return": [10.8, -0.3],
        "success": [True, False],
        "status": ["ok", "format_error"],
        "observations": [["#P"], ["#P", "#_P"]],
        "responses": [["<answer>Up || Up</answer>"], ["<answer>Up</answer>", "up"]],
        "actions": [["Up || Up"], ["Up || Up || Up", ""]],
    }
    return _table("episodes", columns)


_MAKERS = {
    "turns": example_turns,
    "siblings": _siblings,
    "rewards": _rewards,
    "selection": _selection,
    "curriculum": _curriculum,
    "samples": _samples,
    "trained_tokens": _trained_tokens,
    "teacher_logprobs": _teacher_logprobs,
    "teacher_top_tokens": _teacher_top_tokens,
    "credits": _credits,
    "credit_estimates": _credit_estimates,
    "metrics": _metrics,
    "episodes": _episodes,
    "episode_turns": lambda: example_turns().cast(DATASETS["episode_turns"].schema),
    "images": _images,
    "turn_images": _turn_images,
}


def _table(kind: str, columns: dict[str, object]) -> pa.Table:
    schema = DATASETS[kind].schema
    return pa.table(
        {
            name: value if isinstance(value, pa.Array) else pa.array(value, schema.field(name).type)
            for name, value in columns.items()
        },
        schema=schema,
    )


def _lists(values: np.ndarray, type_: pa.DataType) -> pa.Array:
    """Return a list column from a matrix, one list per row."""
    offsets = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
    items = pa.array(values.ravel(), type_)
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=pa.list_(pa.field("item", type_, nullable=False)))
