"""Check whether a run fits, before anything is started.

Estimate --misfits--> reasons --check_fits--> an error with numbers, and what makes a run smaller
"""

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.sizing.architecture import Architecture
from starpo.ragen.sizing.device import GIB, Machine
from starpo.ragen.sizing.estimate import Estimate, estimate

ADVICE = (
    "Smaller are: activations and logits with a lower update.micro_batch_tokens, or recomputed with "
    "update.activation_checkpointing; weights, gradients and optimisers with update.lora, or on several GPUs with "
    "update.learner = 'deepspeed'; keys and values with a lower rollout.shard_groups, or vLLM's with a lower "
    "gpu_memory_utilization. `starpo plan --set PATH=VALUE` shows whether it fits then."
)


class DoesNotFitError(ConfigError):
    """Raised if a run needs more memory, or more GPUs, than available."""


def misfits(run_estimate: Estimate, host_memory_bytes: float | None = None) -> list[str]:
    """Return why a run does not fit, one clause per reason; empty if it fits.

    Args:
        found: Estimate of the run on its machine.
        host_memory_bytes: Host memory of the GPUs' machine; None to skip this check.
    """
    machine, reasons = run_estimate.machine, []
    if run_estimate.num_gpus > machine.number:
        reasons.append(f"it asks for {run_estimate.num_gpus} GPUs, but there {_are(machine.number)}")
    if run_estimate.memory.peak_bytes > machine.memory_bytes:
        where, has = ("of memory", "the machine") if machine.is_cpu else ("per GPU", "each")
        reasons.append(
            f"it needs about {_gib(run_estimate.memory.peak_bytes)} {where}, but {has} has {_gib(machine.memory_bytes)}"
        )
    if host_memory_bytes is not None and run_estimate.host_bytes > host_memory_bytes:
        reasons.append(
            f"it puts about {_gib(run_estimate.host_bytes)} of optimiser states into the machine's memory, which has "
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
        DoesNotFitError: If the run does not fit; the message has the numbers, the largest parts and advice.
    """
    run_estimate = estimate(config, architecture, machine)
    reasons = misfits(run_estimate, host_memory_bytes)
    if not reasons:
        return run_estimate
    lines = [f"this run does not fit: {'; '.join(reasons)}. Its largest parts:"]
    lines += [f"  {_gib(part.size_bytes):>10}  {part.name} ({part.formula})" for part in run_estimate.memory.parts[:4]]
    lines.append(f"{ADVICE} STARPO_SHOULD_CHECK_MEMORY=false starts the run anyway.")
    raise DoesNotFitError("\n".join(lines))


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / GIB:.1f} GiB"


def _are(number: int) -> str:
    return "is 1" if number == 1 else f"are {number}"
