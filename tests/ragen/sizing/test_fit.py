"""A run that does not fit is refused with numbers, and with what makes a run smaller."""

import re

import pytest

from starpo.flows.presets import preset
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.sizing.architecture import architecture_of
from starpo.ragen.sizing.device import GIB, Machine, parse_bytes
from starpo.ragen.sizing.fit import DoesNotFitError, check_fits


def refused(name: str, machine: Machine, overrides: dict[str, object] | None = None, host: float | None = None) -> str:
    config = preset(name, overrides)
    with pytest.raises(DoesNotFitError) as caught:
        check_fits(config, architecture_of(config), machine, host)
    return str(caught.value)


def test_memory_error_lists_largest_parts() -> None:
    message = refused("sokoban-paper", Machine(24 * GIB, 1))
    first, *lines = message.splitlines()
    needed = re.fullmatch(
        r"this run does not fit: it needs about ([0-9.]+) GiB per GPU, but each has 24.0 GiB. Its largest parts:",
        first,
    )
    assert needed is not None
    assert float(needed[1]) > 24
    assert any(re.match(r"\s+6.8 GiB  activations \(bfloat16, 4,096 tokens ", line) for line in lines)
    assert "lower update.micro_batch_tokens" in message
    assert message.endswith("STARPO_SHOULD_CHECK_MEMORY=false starts the run anyway.")


def test_host_memory_error_names_optimiser_states() -> None:
    overrides = {"update.learner": "deepspeed", "update.deepspeed.offload_optimizer": True}
    message = refused("sokoban-paper", Machine(141 * GIB, 1), overrides, host=8.0 * GIB)
    assert "it puts about 11.0 GiB of optimiser states into the machine's memory, which has 8.0 GiB" in message


@pytest.mark.parametrize(
    ("text", "gibibytes"), [("80GB", 80), ("80", 80), ("24 GiB", 24), ("512MB", 0.5), ("1.5g", 1.5)]
)
def test_memory_is_read_from_words(text: str, gibibytes: float) -> None:
    assert parse_bytes(text) == gibibytes * GIB


@pytest.mark.parametrize("text", ["", "much", "80TB", "-3GB", "0"])
def test_what_is_no_memory_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"not an amount of memory; expected a number of gigabytes such as 80GB"):
        parse_bytes(text)


def test_too_few_gpus_are_said() -> None:
    overrides = {"update.learner": "deepspeed", "update.deepspeed.num_ranks": 4}
    assert "it asks for 4 GPUs, but there is 1" in refused("sokoban-paper", Machine(141 * GIB, 1), overrides)
