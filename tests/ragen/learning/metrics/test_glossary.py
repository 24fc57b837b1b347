"""Every metric that the code names, or that its functions return, has a meaning."""

import re
from pathlib import Path

import numpy as np
import pytest

from starpo.ragen.learning.metrics.glossary import METRICS, explain
from starpo.ragen.learning.metrics.table import BY_TAG
from starpo.ragen.learning.metrics.template import template_metrics

RAGEN = Path(__file__).parents[4] / "ragen"
NAMED = re.compile(r"""["`]((?:rollout|reward|filter|update|teacher)/[a-z_]+)["`]""")
STEP = re.compile(r"""note_step\("([a-z_]+)\"""")


def named_in_code() -> set[str]:
    texts = [
        path.read_text(encoding="utf-8") for top in ("learning", "methods") for path in (RAGEN / top).rglob("*.py")
    ]
    return {name for text in texts for name in NAMED.findall(text)} | {
        f"update/{name}" for text in texts for name in STEP.findall(text)
    }


def test_metrics_named_in_code_are_explained() -> None:
    names = named_in_code()
    assert len(names) > 40
    assert [name for name in sorted(names) if explain(name) is None] == []


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("rollout/success_rate", "rollout/success_rate"),
        ("rollout/success_rate/sokoban", "rollout/success_rate/<part of a mixture>"),
        ("evaluation/mixture/sokoban/success", "evaluation/<panel>/success"),
        ("evaluation/sokoban/success_low", "evaluation/<panel>/success_low"),
        ("evaluation/sokoban/pass_at_16", "evaluation/<panel>/pass_at_<k>"),
        ("reasoning/any_turn/token/retrieval_at_2", "reasoning/<turns>/<per>/retrieval_at_<k>"),
        (
            "reasoning/any_turn/token/retrieval_at_2_above_chance",
            "reasoning/<turns>/<per>/retrieval_at_<k>_above_chance",
        ),
        ("update/validity_after/ratio_q05", "update/validity_<when>/ratio_q<percent>"),
        ("update/value_loss", "update/value_loss"),
        ("update/critic_gradient_norm_max", "update/<companion>_gradient_norm_max"),
        ("replay/branch/validity_before/ratio_q01", "replay/<side>/<update metric>"),
        ("replay/weight_change_cosine", "replay/<what>_cosine"),
    ],
)
def test_name_has_its_closest_form(name: str, form: str) -> None:
    metric = explain(name)
    assert metric is not None
    assert metric.name == form


def test_metric_of_others_has_no_meaning() -> None:
    assert explain("mine/success_rate") is None
    assert explain("rollout/success_rates") is None


def test_probe_metrics_are_explained() -> None:
    names = [f"reasoning/first_turn/token/{name}" for name in template_metrics(np.eye(9), list(range(9)))]
    forms = {metric.name for name in names if (metric := explain(name))}
    assert len(names) == 13
    assert len(forms) == 7


def test_parts_of_mixtures_name_the_part() -> None:
    of_parts = [metric for metric in METRICS if metric.name.endswith("/<part of a mixture>")]
    assert len(of_parts) == len(BY_TAG)
    assert all(metric.meaning.endswith("; of one part of a mixture") for metric in of_parts)
