"""Numbers behind every result: advantages, losses, weights, vocabulary and schemas, compared with values.json.

Inputs are small exact fractions, in float64. `pytest tests/golden --regenerate-golden` rewrites the file. A number that
changes needs a reason, and the stages that use it need a new version.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from starpo.ragen.agents.policy.tokenizer import vocabulary_digest
from starpo.ragen.config.objective import ObjectiveConfig
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import ADVANTAGES, SHAPINGS, SURROGATES
from starpo.ragen.learning.objectives import kl, losses
from starpo.ragen.learning.objectives.columns import ScoredInputs
from starpo.ragen.learning.objectives.distillation import distilled
from starpo.ragen.learning.objectives.ratios import RATIOS, log_ratio
from starpo.ragen.learning.objectives.surrogates import SurrogateInputs, covariances
from starpo.schemas.datasets import DATASETS

GOLDEN = Path(__file__).parent / "values.json"

POLICY = torch.tensor([-0.25, -1.5, -0.125, -2.0, -0.75, -3.0], dtype=torch.float64)
OLD = torch.tensor([-0.5, -1.25, -0.125, -2.5, -1.0, -2.0], dtype=torch.float64)
SIGNALS = torch.tensor([1.0, -0.5, 2.0, 0.25, -1.0, 0.5], dtype=torch.float64)


def inputs() -> ScoredInputs:
    """Two groups of two trajectories of at most five tokens in two turns, with masked gaps, discounts and a critic."""
    mask = torch.tensor([[1, 1, 0, 1, 1], [1, 1, 1, 0, 0], [1, 0, 1, 1, 1], [1, 1, 1, 1, 1]], dtype=torch.bool)
    turns = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 1, 1, 1], [0, 0, 0, 0, 1], [0, 1, 1, 1, 1]])
    rewards = torch.zeros(4, 5, dtype=torch.float64)
    rewards[0, 1], rewards[0, 4], rewards[1, 1], rewards[1, 2] = -0.1, 10.0, -0.1, -1.0
    rewards[2, 3], rewards[2, 4], rewards[3, 0], rewards[3, 4] = 0.5, 2.0, -0.25, 1.0
    values = torch.arange(20, dtype=torch.float64).reshape(4, 5) / 8
    return ScoredInputs(
        returns_B=rewards.sum(1), group_B=torch.tensor([0, 0, 1, 1]), rewards_BT=rewards, mask_BT=mask, turn_BT=turns,
        values_BT=values, state_BK=torch.tensor([[0, 1], [0, 2], [3, 4], [3, 4]]), is_answer_BT=turns == 1,
        marks_BK=torch.tensor([[1.0, 1.0], [1.0, 0.0]] * 2), kept_share=0.5,
        greedy_returns_B=torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64), logprobs_BT=-1 - values / 4,
        collision_BT=0.25 + values / 8, implicit_rewards_BT=(values % 0.75) - 0.25,
        component_returns={"environment": rewards.sum(1), "format": torch.tensor([0.0, -0.1, -0.1, -0.3]).double()},
        gamma=0.99, gae_lambda=0.95, gamma_turn=0.9, lambda_turn=0.8,
    )  # fmt: skip


def computed() -> dict[str, Any]:
    lengths = torch.tensor([3, 0, 5, 2])
    estimates = {name: load(ADVANTAGES, name)(inputs()) for name in sorted(ADVANTAGES)}
    relative = estimates["grpo"].advantages_BT
    logs = log_ratio(POLICY, OLD)
    unit = torch.tensor([0, 0, 0, 1, 1, 1])
    return {
        "advantages": {name: estimate.advantages_BT.tolist() for name, estimate in estimates.items()},
        "value targets": {
            name: estimate.value_targets_BT.tolist()
            for name, estimate in estimates.items()
            if estimate.value_targets_BT is not None
        },
        "shapings": {name: load(SHAPINGS, name)(relative, inputs()).tolist() for name in sorted(SHAPINGS)},
        "losses": {
            **{
                f"{name}, ratio of a {level}": load(SURROGATES, name)(
                    SurrogateInputs(
                        POLICY,
                        logs,
                        RATIOS[level](logs, unit),
                        SIGNALS,
                        unit,
                        0.2,
                        0.28,
                        *covariances(OLD, SIGNALS),
                        ObjectiveConfig(surrogate=name).surrogate_options,
                    )
                ).loss_M.tolist()
                for name in sorted(SURROGATES)
                for level in ("token", "sequence", "turn_arithmetic")
                if level == "token" or name not in ("gmpo", "dppo_tv", "dppo_kl")
            },
            "truncated_importance": losses.truncated_importance(POLICY, OLD, 1.5).tolist(),
            "value_loss": losses.value_loss(POLICY, OLD, SIGNALS, 0.2).tolist(),
            "distilled": distilled(SIGNALS, POLICY, OLD, unit == 0, 2.0, 0.5).tolist(),
            "entropy": losses.entropy(torch.log_softmax(POLICY.reshape(2, 3), -1)).tolist(),
            **{
                f"token_weights {way}": losses.token_weights(lengths, way, 8).tolist()
                for way in ("token_mean", "sequence_mean", "dr_grpo")
            },
            **{f"kl {name}": estimator(POLICY, OLD).tolist() for name, estimator in kl.KL_ESTIMATORS.items()},
        },
        "vocabulary": {"digest": vocabulary_digest()},
        "schemas": {
            name: {
                "version": dataset.version,
                "columns": [f"{c.name}: {c.type}{' or null' * c.nullable}" for c in dataset.columns],
            }
            for name, dataset in DATASETS.items()
        },
    }


def close(old: Any, new: Any) -> bool:
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(close(old[name], new[name]) for name in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(close, old, new))
    return bool(new == pytest.approx(old, rel=1e-12, abs=1e-12)) if isinstance(old, float) else old == new


@pytest.mark.parametrize("new", [{}, {"a": [1.0, 2.0], "b": 1}, {"a": [1.0]}, {"a": [1.0, 2.0 + 1e-11]}, {"a": None}])
def test_small_difference_is_detected(new: dict[str, Any]) -> None:
    assert close({"a": [1.0, 2.0]}, {"a": [1.0, 2.0 + 1e-13]})
    assert not close({"a": [1.0, 2.0]}, new)


def test_no_number_changes_unseen(golden: Callable[[Path, Any], Any]) -> None:
    now = computed()
    stored = golden(GOLDEN, now)
    parts = sorted({(part, name) for values in (stored, now) for part in values for name in values[part]})
    changed = [
        f"{part}: {name}"
        for part, name in parts
        if not close(stored.get(part, {}).get(name), now.get(part, {}).get(name))
    ]
    assert not changed, (
        f"changed: {', '.join(changed)}. If that is meant: raise the version of the stages that use it (tasks/*.py) or "
        "of the dataset (schemas/datasets.py), then pytest tests/golden --regenerate-golden, and review values.json"
    )
