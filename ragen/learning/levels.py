"""Levels of a curriculum: their shares of the next rollout, and the groups that these shares give.

    curriculum before, selections of the rollout that followed it --next_curriculum--> curriculum
    curriculum, number of groups --deal_levels--> tag of every group

A level is a part of the environment (`EnvironmentSettings.tagged`). Its success is the mean of its latest groups'
success rates, as the selections have them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import fsum, isfinite
from typing import Any

import pyarrow as pa

from starpo.ragen.config.curriculum import CurriculumConfig
from starpo.ragen.config.plugin_calls import plugin_call
from starpo.ragen.core.errors import DataError
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import CURRICULA
from starpo.schemas.datasets import CURRICULUM


@dataclass(frozen=True)
class Level:
    """A level, as it stands after the groups played so far.

    Attributes:
        tag: Tag of the environment's part.
        base: Its share in the environment, and so in the panel; those of all levels sum to 1.
        share: Its share of the groups of the latest rollout; 0 if it was not open, and before the first rollout.
        recent: Success rates of its latest groups that have a valid trajectory, oldest first; at most a window.
        num_groups: Groups of it that were played so far.
        owed: Groups that its shares so far gave it, minus those that were played.
    """

    tag: str
    base: float
    share: float = 0.0
    recent: tuple[float, ...] = ()
    num_groups: int = 0
    owed: float = 0.0

    @property
    def success(self) -> float | None:
        """Mean of `recent`; None if it is empty."""
        return fsum(self.recent) / len(self.recent) if self.recent else None


def next_curriculum(
    bases: Mapping[str, float], config: CurriculumConfig, earlier: pa.Table | None, selections: Sequence[pa.Table]
) -> pa.Table:
    """Compute the shares of the next rollout.

    Args:
        bases: Tag -> share in the environment, relative to one another; from the easiest level to the hardest.
        config: The curriculum.
        earlier: The curriculum of the latest rollout. None: there was none yet.
        selections: Of all attempts of that rollout, in order.

    Returns:
        Dataset `curriculum`, one row per level, the easiest first.

    Raises:
        DataError: If the shares are not one number of at least 0 for each level, with a sum above 0.
    """
    total = sum(bases.values())
    levels = [Level(tag, base / total) for tag, base in bases.items()]
    if earlier is not None:
        groups = [row for table in selections for row in table.select(["env", "num_valid", "success_rate"]).to_pylist()]
        before = {row["level"]: row for row in earlier.to_pylist()}
        levels = [_after(level, before[level.tag], groups, config.window) for level in levels]
    with plugin_call("curriculum", CURRICULA, config.type):
        shares = load(CURRICULA, config.type)(levels, config)
    return _table(levels, _checked(shares, levels, config.type))


def _after(level: Level, before: Mapping[str, Any], groups: Sequence[Mapping[str, Any]], window: int) -> Level:
    """Return a level after the groups of one rollout; `before` is its row in the curriculum of that rollout."""
    played = [group for group in groups if group["env"] == level.tag]
    rates = [*before["recent"], *(group["success_rate"] for group in played if group["num_valid"])]
    return replace(
        level,
        share=before["share"],
        recent=tuple(rates[-window:]),
        num_groups=before["num_groups"] + len(played),
        owed=before["owed"] + before["share"] * len(groups) - len(played),
    )


def _checked(shares: Sequence[float], levels: Sequence[Level], name: str) -> list[float]:
    """Return shares that sum to 1."""
    total = sum(shares)
    if len(shares) != len(levels) or not all(isfinite(share) and share >= 0.0 for share in shares) or total <= 0.0:
        raise DataError(
            f"curriculum '{name}' gave the shares {list(shares)} for the levels "
            f"{', '.join(level.tag for level in levels)}: expected one number of at least 0 for each, and a sum above 0"
        )
    return [share / total for share in shares]


def _table(levels: Sequence[Level], shares: Sequence[float]) -> pa.Table:
    rows = [
        {
            "level": level.tag,
            "place": place,
            "base_share": level.base,
            "share": share,
            "is_open": share > 0.0,
            "success": level.success,
            "recent": level.recent,
            "num_groups": level.num_groups,
            "owed": level.owed,
        }
        for place, (level, share) in enumerate(zip(levels, shares, strict=True))
    ]
    return pa.Table.from_pylist(rows, CURRICULUM.schema)


def deal_levels(curriculum: pa.Table, number: int) -> list[str]:
    """Deal consecutive groups to levels: each to the level that is furthest behind its share, all rollouts counted.

    So a level with a small share is played now and then, even where a rollout has few groups. Ties go to the easier
    level; a level without a share gets no group. The result for fewer groups is a prefix of that for more.

    Args:
        curriculum: Dataset `curriculum`.
        number: Number of groups.

    Returns:
        Tags, [number].
    """
    rows = sorted(curriculum.select(["level", "place", "share", "owed"]).to_pylist(), key=lambda row: row["place"])
    shares = {row["level"]: Fraction(row["share"]) for row in rows if row["share"] > 0.0}
    behind = {row["level"]: Fraction(row["owed"]) for row in rows if row["level"] in shares}
    dealt = []
    for _ in range(number):
        for level, share in shares.items():
            behind[level] += share
        level = max(behind, key=lambda tag: behind[tag])
        behind[level] -= 1
        dealt.append(level)
    return dealt


def curriculum_metrics(curriculum: pa.Table) -> dict[str, float]:
    """Measure a curriculum: `curriculum/share/<level>`, and `curriculum/success/<level>` where it is known."""
    rows = curriculum.to_pylist()
    shares = {f"curriculum/share/{row['level']}": row["share"] for row in rows}
    return shares | {f"curriculum/success/{row['level']}": row["success"] for row in rows if row["success"] is not None}
