"""Gradients of groups by the std of their returns, as `learning.metrics.gradients` measured them."""

import re
from collections.abc import Mapping

from starpo.ragen.learning.metrics.table import Series

_NAME = re.compile(r"gradients/bucket_(\d+)/(\w+)")


def measured(series: Mapping[str, Series]) -> dict[int, dict[int, dict[str, float]]]:
    """Collect the results of `gradient_metrics`: iteration -> bucket -> last part of name -> value; keys ascending."""
    by_iteration: dict[int, dict[int, dict[str, float]]] = {}
    for name, values in series.items():
        if match := _NAME.fullmatch(name):
            for iteration, value in values.items():
                by_iteration.setdefault(iteration, {}).setdefault(int(match[1]), {})[match[2]] = value
    return {iteration: dict(sorted(of.items())) for iteration, of in sorted(by_iteration.items())}
