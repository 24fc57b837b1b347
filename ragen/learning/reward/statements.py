"""Rewards for statements in the reasoning about where things are: 'grounding' and 'world_model' (VAGEN), judge-free.

    <observation> in the reasoning, the turn's observation   -> grounding
    <prediction> in the reasoning, the next turn's           -> world_model

Only well-formed responses are rewarded, as in VAGEN. Texts that need no look at the state earn nothing: an empty text,
the prompt's own words, all directions at once. Texts repeated for many different states are penalised.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from starpo.ragen.agents.prompting.forms import parts
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.config.reward_components import StatementOptions
from starpo.ragen.core.lookup import resolve
from starpo.ragen.core.registry import SCENES
from starpo.ragen.envs.statements import Scene, read_statements, score

_COLUMNS = ["trajectory_id", "turn", "env", "observation", "think", "format_ok", "executed_actions", "info"]
_LEAST_FREQUENT = 2
"""Minimum number of different observations that a frequent text was said of."""


def grounding(turns: pa.Table, config: RewardConfig) -> np.ndarray:
    """Give `reward * score` of <observation>, compared with the observation that the turn answers.

    The score is `sum_i w_i F1_i / sum_i w_i` over the environment's things (VAGEN: .5 F1(target) + .5 F1(box)); see
    `ragen.envs.statements.score`. A frequent text with a low score gets `frequent_penalty` instead; see
    `StatementOptions`.

    Args:
        turns: Dataset `turns`.
        config: `options["grounding"]`.

    Returns:
        float64 [rows]; 0 where the response was malformed or the observation cannot be parsed.
    """
    rows = turns.select(_COLUMNS).to_pylist()
    return _paid(rows, "observation", [_scene(row["env"], row["observation"]) for row in rows], config, "grounding")


def world_model(turns: pa.Table, config: RewardConfig) -> np.ndarray:
    """Give `reward * score` of <prediction>, compared with the state after the turn; otherwise as in `grounding`.

    That state is the observation of the trajectory's next turn. After the last turn nothing was observed: the state is
    derived from the last observation, the executed actions and the environment's info after them.

    Args:
        turns: Dataset `turns`.
        config: `options["world_model"]`.

    Returns:
        float64 [rows]; 0 where the response was malformed or that state cannot be determined.
    """
    rows = turns.select(_COLUMNS).to_pylist()
    observed = {(row["trajectory_id"], row["turn"]): row["observation"] for row in rows}
    scenes = []
    for row in rows:
        after = observed.get((row["trajectory_id"], row["turn"] + 1))
        if after is not None:
            scenes.append(_scene(row["env"], after))
        else:
            scenes.append(_scene(row["env"], row["observation"], tuple(row["executed_actions"]), row["info"]))
    return _paid(rows, "prediction", scenes, config, "world_model")


def _paid(
    rows: Sequence[Mapping[str, Any]], tag: str, scenes: Sequence[Scene | None], config: RewardConfig, name: str
) -> np.ndarray:
    options = StatementOptions.model_validate(config.options[name])
    texts = [parts(row["think"]).get(tag) if row["format_ok"] else None for row in rows]
    scores = np.array(
        [
            score(read_statements(text), scene, options.weights) if text is not None and scene is not None else 0.0
            for text, scene in zip(texts, scenes, strict=True)
        ]
    )
    is_lazy = _frequent(texts, [row["observation"] for row in rows], options.frequent_texts)
    is_lazy &= (scores < options.frequent_score) & np.array([scene is not None for scene in scenes], bool)
    return np.where(is_lazy, options.frequent_penalty, options.reward * scores)


def _frequent(texts: Sequence[str | None], observations: Sequence[str], number: int) -> np.ndarray:
    """Mark the texts among the `number` that were said of the most different observations, ignoring case and space."""
    frame = pl.DataFrame(
        {"text": [None if text is None else " ".join(text.casefold().split()) for text in texts], "of": observations},
        schema={"text": pl.String, "of": pl.String},
    )
    counts = frame.drop_nulls().group_by("text").agg(pl.col("of").n_unique()).filter(pl.col("of") >= _LEAST_FREQUENT)
    frequent = counts.sort(["of", "text"], descending=[True, False]).head(number)["text"]
    return frame["text"].is_in(frequent.implode()).fill_null(False).to_numpy().copy()


@lru_cache(65_536)
def _scene(env: str, observation: str, actions: tuple[str, ...] = (), info: str = "{}") -> Scene | None:
    scene: Scene | None = _reader(env)(observation, actions, json.loads(info))
    return scene


@cache
def _reader(env: str) -> Any:
    return resolve(SCENES[env])
