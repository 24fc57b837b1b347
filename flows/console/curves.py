"""Small curves of success in a terminal: one line each, from its first value to its last, 0% to 100% in eight steps."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from rich.text import Text

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import StageKeys

Curves = Mapping[str, Sequence[float | None]]
"""Name -> shares, 0 to 1, in order; None where there is none."""
_STEPS = "▁▂▃▄▅▆▇█"
_WIDTH = 40
"""Characters of the longest curve; each is the mean of the values that fall into it."""
_STYLES = ("cyan", "green")


def sparkline(shares: Sequence[float], width: int = _WIDTH) -> str:
    """Draw shares, 0 to 1, in at most `width` characters."""
    number = min(width, len(shares))
    edges = [place * len(shares) // number for place in range(number + 1)] if number else []
    means = [fmean(shares[start:stop]) for start, stop in pairwise(edges)]
    return "".join(_STEPS[min(len(_STEPS) - 1, int(mean * len(_STEPS)))] for mean in means)


def curve_lines(encoding: str, curves: Curves) -> list[Text]:
    """Return a line for each curve of at least two values; none in an encoding that lacks them."""
    if not encoding.lower().startswith("utf"):
        return []
    known = {name: [share for share in shares if share is not None] for name, shares in curves.items()}
    wide = max(map(len, known), default=0)
    lines = []
    for (name, shares), style in zip(known.items(), _STYLES, strict=False):
        if len(shares) > 1:
            line = Text(f"{name:<{wide}}  ").append(sparkline(shares), style=style)
            lines.append(line.append(f"  {shares[0]:.1%} to {shares[-1]:.1%}, {len(shares)} points"))
    return lines


def success_curves(panel: Sequence[float | None], training: Sequence[float | None]) -> Curves:
    """Name the curves of a run: success on its panel, and of its rollouts."""
    return {"panel success": panel, "training success": training}


class SuccessReader:
    """Reads the success of a run that goes on; what was read is kept."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, dict[str, float]] = {}
        self._facts: object = None
        self._curves: Curves = {}

    def curves(self, run: str, facts: object) -> Curves:
        """Return its curves; the store is asked again once `facts` differ. Empty if it cannot be read now."""
        if facts != self._facts:
            self._facts = facts
            try:
                self._curves = self._read(run)
            except StarPOError:
                self._curves = {}
        return self._curves

    def _read(self, run: str) -> Curves:
        from starpo.ragen.evidence.reading import hashed_metrics, side_by_side

        record = self._store.runs.find(run)
        if record is None:
            return {}
        recorded = self._store.runs.iterations(run).values()
        panel, training = (_keys(recorded, stage) for stage in (f"evaluate:{record.environment}", "diagnose"))
        new = [key for key in (*panel, *training) if key not in self._known]

        def read(key: str) -> dict[str, float]:
            return hashed_metrics(self._store, self._store.lasting_manifest("metrics", key))

        self._known |= zip(new, side_by_side(self._store, read, new), strict=True)
        on_panel = f"evaluation/{record.environment}/success"
        return success_curves(
            [self._known[key].get(on_panel) for key in panel],
            [self._known[key].get("rollout/success_rate") for key in training],
        )


def _keys(recorded: Iterable[StageKeys], stage: str) -> list[str]:
    return [stages[stage]["metrics"] for stages in recorded if "metrics" in stages.get(stage, {})]
