"""`render_objectives`: comparison of objectives on stored rollouts, as one HTML page without scripts.

Iteration -> Compared -> rows, heat maps -> document
"""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from starpo.ragen.evidence.diagnostics.objectives import Compared, draw_cosines
from starpo.ragen.evidence.report.document import render_document
from starpo.ragen.learning.learners.spans import KINDS

_STYLES = ("colours.css", "document.css", "objectives.css")


def render_objectives(
    run: str,
    store_url: str,
    found: Mapping[int, Compared],
    left_out: Mapping[str, str],
    kept: Mapping[str, Sequence[str]],
    not_measured: Mapping[int, str],
) -> str:
    """Render the page.

    Args:
        run: Name of the run.
        store_url: URL of the store, without credentials.
        found: Iteration -> measurements; at least one.
        left_out: Objective -> why it was not measured.
        kept: Objective -> its settings that the stored data was not produced with.
        not_measured: Iteration -> why nothing was measured.
    """
    return render_document(
        "objectives.html.j2",
        scripts=(),
        styles=_STYLES,
        data={},
        run=run,
        store_url=store_url,
        iterations=[_section(run, iteration, compared) for iteration, compared in found.items()],
        left_out=left_out,
        kept=kept,
        not_measured=not_measured,
    )


def _section(run: str, iteration: int, found: Compared) -> dict[str, Any]:
    num_turns = max((len(found.by_turn(name, "norm")) for name in found.values), default=0)
    return {
        "number": iteration,
        "picture": Markup(draw_cosines(found, f"{run}, iteration {iteration}")),  # drawn here, with escaped texts
        "turns": list(range(num_turns)),
        "kinds": list(KINDS),
        "rows": [_row(found, name, num_turns) for name in found.values],
    }


def _row(found: Compared, name: str, num_turns: int) -> dict[str, Any]:
    values = found.values[name]

    def of_turns(number: str) -> list[float | None]:
        numbers = found.by_turn(name, number)
        return [*numbers, *[None] * (num_turns - len(numbers))]

    return {
        "name": name,
        "norm": _written(values.get("norm"), ".3g"),
        "snr": _written(values.get("signal_to_noise"), ".3g"),
        "num_groups": int(values.get("num_groups", 0)),
        "shares": [_written(share, "z.2f") for share in of_turns("share")],
        "turn_signs": [_signs(*pair) for pair in zip(of_turns("positive"), of_turns("negative"), strict=True)],
        "kind_signs": [_signs(values.get(f"{kind}/positive"), values.get(f"{kind}/negative")) for kind in KINDS],
    }


def _signs(positive: float | None, negative: float | None) -> str:
    return "–" if positive is None or negative is None else f"{positive:.0%} / {negative:.0%}"


def _written(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
