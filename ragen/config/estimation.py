"""Which settings of an update decide its advantages, and what an estimator with such settings is called.

Objectives that agree in these share their advantages, however different their losses are.
"""

from collections.abc import Mapping
from typing import Any

from starpo.ragen.config.update import UpdateConfig

_SETTINGS = (
    "advantage_scale", "std_ddof", "should_whiten", "gamma", "gae_lambda", "gamma_turn", "lambda_turn",
    "reward_placement", "advantage_on", "shaping", "distillation_coefficient", "distillation", "reward_coefficient",
)  # fmt: skip
_KL = ("kl_coefficient", "kl_estimator")
"""Settings of a KL penalty in the reward; one in the loss has no part in advantages."""


def estimator_name(config: UpdateConfig) -> str:
    """Name the estimator of an update: its name in the registry, and the settings that are not the default ones.

    Two updates have the same name exactly if the same settings decide their advantages. Settings that an estimator does
    not read are not told apart.
    """
    return " ".join([config.advantage, *(f"{name}={_text(value)}" for name, value in _differing(config).items())])


def _differing(config: UpdateConfig) -> dict[str, Any]:
    kl = _KL if config.kl_coefficient > 0 and config.kl_placement == "reward" else ()
    prm = ("prm",) if "prm" in config.needs else ()
    plain, in_effect = UpdateConfig(advantage=config.advantage), config.effective()
    names = [name for name in (*_SETTINGS, *kl, *prm) if name in in_effect]
    default = {**plain.advantage_options, **plain.model_dump(mode="json", include=set(names))}
    now = {**config.advantage_options, **{name: in_effect[name] for name in names}}
    flat = dict(_leaves(default))
    return {name: value for name, value in _leaves(now) if value != flat.get(name)}


def _leaves(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            pairs += [(f"{name}.{inner}", leaf) for inner, leaf in _leaves(value)]
        else:
            pairs.append((name, value))
    return pairs


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)
