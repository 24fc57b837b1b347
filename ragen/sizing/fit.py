"""Check whether a run fits, and if not, what would make it fit, before anything is started.

Estimate --misfits--> reasons; settings --remedies--> changes that help --check_fits--> an error with numbers
"""

from collections.abc import Iterator, Mapping
from typing import Any

from starpo.ragen.config.load import apply_overrides
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.registry import LEARNERS
from starpo.ragen.sizing.architecture import Architecture
from starpo.ragen.sizing.device import GIB, Machine
from starpo.ragen.sizing.estimate import Estimate, estimate

_MAX_REMEDIES = 4
_LEAST_TOKENS = 512
_LEAST_ROWS = 16
_RANK = 64


class DoesNotFitError(ConfigError):
    """Raised if a run needs more memory, or more GPUs, than available."""


def misfits(found: Estimate, host_memory_bytes: float | None = None) -> list[str]:
    """Return why a run does not fit, one clause per reason; empty if it fits.

    Args:
        found: Estimate of the run on its machine.
        host_memory_bytes: Host memory of the GPUs' machine; None to skip this check.
    """
    machine, reasons = found.machine, []
    if found.num_gpus > machine.number:
        reasons.append(f"it asks for {found.num_gpus} GPUs, but there {_are(machine.number)}")
    if found.memory.peak_bytes > machine.memory_bytes:
        where, has = ("of memory", "the machine") if machine.is_cpu else ("per GPU", "each")
        reasons.append(
            f"it needs about {_gib(found.memory.peak_bytes)} {where}, but {has} has {_gib(machine.memory_bytes)}"
        )
    if host_memory_bytes is not None and found.host_bytes > host_memory_bytes:
        reasons.append(
            f"it puts about {_gib(found.host_bytes)} of optimiser states into the machine's memory, which has "
            f"{_gib(host_memory_bytes)}"
        )
    return reasons


def check_fits(
    config: StarPOConfig, architecture: Architecture, machine: Machine, host_memory_bytes: float | None = None
) -> Estimate:
    """Check that a run fits, before it is started.

    Args:
        config: Settings of the run.
        architecture: Architecture of the policy.
        machine: Machine to run on.
        host_memory_bytes: Host memory of the GPUs' machine; None to skip this check.

    Returns:
        The estimate.

    Raises:
        DoesNotFitError: If the run does not fit; the message has the numbers, the largest parts and remedies.
    """
    found = estimate(config, architecture, machine)
    reasons = misfits(found, host_memory_bytes)
    if not reasons:
        return found
    lines = [f"this run does not fit: {'; '.join(reasons)}. Its largest parts:"]
    lines += [f"  {_gib(part.size_bytes):>10}  {part.name} ({part.formula})" for part in found.memory.parts[:4]]
    helpful = list(remedies(config, architecture, machine, host_memory_bytes))
    if helpful:
        lines.append("Any of these would make it fit:")
        lines += [f"  {flags(overrides)}  ({_gib(after.memory.peak_bytes)})" for overrides, after in helpful]
    else:
        lines.append(
            "No change of batches, adapters or caches makes it fit: take a smaller policy or a larger machine."
        )
    lines.append(
        "`ragen plan` shows all of it. If the estimate is wrong for you, RAGEN_SHOULD_CHECK_MEMORY=false starts"
    )
    lines[-1] += " the run anyway."
    raise DoesNotFitError("\n".join(lines))


def remedies(
    config: StarPOConfig, architecture: Architecture, machine: Machine, host_memory_bytes: float | None = None
) -> Iterator[tuple[dict[str, Any], Estimate]]:
    """Yield changes that make a run fit, mildest first, each with the resulting estimate; at most four.

    Args:
        config: Settings of the run.
        architecture: Architecture of the policy.
        machine: Machine to run on.
        host_memory_bytes: As in `check_fits`.
    """
    number = 0
    for ladder in _ladders(config, machine):
        for overrides in ladder:
            try:
                after = estimate(apply_overrides(config, overrides), architecture, machine)
            except ConfigError:  # the settings contradict each other
                continue
            if not misfits(after, host_memory_bytes):
                yield overrides, after
                number += 1
                break
        if number == _MAX_REMEDIES:
            return


def _ladders(config: StarPOConfig, machine: Machine) -> Iterator[list[dict[str, Any]]]:
    """Yield sequences of increasingly drastic changes; of each, the first that makes the run fit is used, if any."""
    update, rollout = config.update, config.rollout
    yield _halvings("update.micro_batch_tokens", update.micro_batch_tokens, _LEAST_TOKENS)
    yield rollout.engine_config.remedies()
    least = max(1, _LEAST_ROWS // rollout.group_size)
    yield _halvings("rollout.shard_groups", min(rollout.shard_groups, rollout.num_groups), least)
    recomputing = {"update.activation_checkpointing": True}
    smallest = {"update.micro_batch_tokens": min(update.micro_batch_tokens, _LEAST_TOKENS), **recomputing}
    yield [recomputing, smallest]
    for learner in () if machine.is_cpu else LEARNERS:
        cuts = update.model_copy(update={"learner": learner}).learner_config.remedies(machine.number)
        yield [*cuts, *({**cut, **smallest} for cut in cuts)]
    if update.lora is None and update.optimiser.type == "adamw":
        adapters: dict[str, Any] = {"update.lora": {"rank": _RANK}}
        yield [adapters, {**adapters, **smallest}]


def _halvings(path: str, value: int, least: int) -> list[dict[str, Any]]:
    values = []
    while value // 2 >= least:
        value //= 2
        values.append({path: value})
    return values


def flags(overrides: Mapping[str, Any]) -> str:
    """Format settings as command-line flags, such as `--set update.lora='{rank = 64}'`."""
    return " ".join(f"--set {path}={_toml(value)}" for path, value in overrides.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "'{" + ", ".join(f"{name} = {_toml(inner)}" for name, inner in value.items()) + "}'"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / GIB:.1f} GiB"


def _are(number: int) -> str:
    return "is 1" if number == 1 else f"are {number}"
