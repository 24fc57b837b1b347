"""Names of evaluation variants are part of the names of stages and metrics; invalid ones are rejected."""

import pytest

from starpo.flows.presets import preset
from starpo.ragen.config.load import apply_overrides
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError

BANDIT = {"type": "bandit"}


def with_variant(name: str) -> StarPOConfig:
    return apply_overrides(preset("smoke"), {"evaluation.variants": {name: BANDIT}})


def refusal(name: str) -> str:
    with pytest.raises(ConfigError) as caught:
        with_variant(name)
    return str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "[/b]",
        "x/seen",
        "a\x1b[8m",
        "a\n",
        "a\u202eb",
        "gr\u00fcn",
        "\u0661",
        " a",
        "-a",
        ".a",
        "a" * 65,
        "x" * 100_000,
    ],
)
def test_invalid_name_parts_are_refused(name: str) -> None:
    message = refusal(name)
    assert f"evaluation.variants (override): a variant is named {repr(name)[:60]}" in message
    assert "1 to 64 letters (a to z), digits, spaces, dots, dashes and underscores" in message
    assert len(message) < 600
    assert message.isprintable()


def test_many_faults_are_one_message() -> None:
    with pytest.raises(ConfigError, match=r"is named '/0', '/1', '/2' \(100 in all\): expected a name") as caught:
        apply_overrides(preset("smoke"), {"evaluation.variants": {f"/{number}": BANDIT for number in range(100)}})
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("name", ["a", "7", "SokobanNewVocab", "6x6 rooms", "v1.2-b_c", "a" * 64])
def test_valid_name_is_a_panel(name: str) -> None:
    assert list(with_variant(name).panels) == ["sokoban", name]


def test_training_environments_name_is_taken() -> None:
    message = refusal("sokoban")
    assert "evaluation.variants.sokoban: the panel of the training environment already has that name" in message
