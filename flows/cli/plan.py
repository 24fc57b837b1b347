"""`ragen plan`: resources that a run will need, by component, and whether it fits."""

from dataclasses import asdict, replace
from typing import Annotated, Any

import typer
from rich.text import Text

from starpo.flows.cli.options import JsonOption, MethodOption, SetOption, parse_overrides
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, say
from starpo.flows.presets import preset as load_preset
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.context_fit import context_fits, worst_misfit
from starpo.ragen.core.counts import counted
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.evidence.sizing.architecture import Architecture, architecture_of
from starpo.ragen.evidence.sizing.device import GIB, MIB, Machine, device, host_memory, parse_bytes, this_machine
from starpo.ragen.evidence.sizing.estimate import Estimate, estimate
from starpo.ragen.evidence.sizing.fit import flags, misfits, remedies
from starpo.ragen.evidence.sizing.storage import checkpoint_bytes, num_kept_checkpoints
from starpo.ragen.evidence.sizing.throughput import RESPONSE_SHARE

_DEFAULT_GPU = "a100-80gb"


def plan(
    preset: Annotated[str, typer.Argument(help="Preset, or a TOML file of settings.")],
    set_: SetOption = None,
    method: MethodOption = None,
    gpu: Annotated[
        str | None, typer.Option(help="A GPU such as a100-80gb or h100-80gb; cpu. Default: this machine's.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="Number of GPUs; with --gpu cpu, number of cores.")] = None,
    gpu_memory: Annotated[
        str | None, typer.Option(help="Memory of each GPU, such as 80GB, if not the usual size.")
    ] = None,
    response_share: Annotated[
        float | None, typer.Option(min=0.01, max=1.0, help="Mean response as a share of the longest. Default: 0.5.")
    ] = None,
    decode_rate: Annotated[
        float | None, typer.Option(min=1.0, help="Rollout tokens per second, if you have measured it.")
    ] = None,
    train_rate: Annotated[
        float | None, typer.Option(min=1.0, help="Training tokens per second, if you have measured it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate what a run will need (memory by component, GPUs, tokens, seconds, storage), and whether it fits."""
    config = load_preset(preset, parse_overrides(set_, method))
    architecture = architecture_of(config)
    machine, is_this = _machine(config, gpu, gpus, gpu_memory)
    found = estimate(
        config,
        architecture,
        machine,
        response_share=response_share or RESPONSE_SHARE,
        decoded_tokens_s=decode_rate,
        trained_tokens_s=train_rate,
    )
    host = host_memory() if is_this else None
    reasons = misfits(found, host)
    helpful = [overrides for overrides, _ in remedies(config, architecture, machine, host)] if reasons else []
    reasons += _full_contexts(config)
    if as_json:
        print_json(_facts(preset, config, found, reasons, helpful))
        return
    _print_tables(preset, config, found, is_this)
    console = Console()
    if not reasons:
        console.print("It fits.", style="green")
        return
    console.print(Text(f"It does not fit: {'; '.join(reasons)}.", style="red"), soft_wrap=True)
    for overrides in helpful:
        say(console, f"would fit with {flags(overrides)}")


def _full_contexts(config: StarPOConfig) -> list[str]:
    """Return why prompts and responses do not fit into the context, if so; `validate` names faults of the model."""
    try:
        misfit = worst_misfit(context_fits(config))
    except StarPOError:
        return []
    return [misfit] if misfit else []


def _machine(config: StarPOConfig, gpu: str | None, number: int | None, gpu_memory: str | None) -> tuple[Machine, bool]:
    """Return the machine to plan for, and whether it is this one."""
    threads = Runtime.current().threads
    here = this_machine(threads)
    if gpu is None and gpu_memory is None and number is None:
        return here, True
    chosen = here.device if gpu is None and not here.device.is_cpu else device(gpu or _DEFAULT_GPU)
    memory = None if gpu_memory is None else parse_bytes(gpu_memory)
    if chosen.is_cpu:
        return Machine(device("cpu", memory or host_memory()), number or threads), False
    if memory is not None:
        chosen = replace(chosen, memory_bytes=memory)
    return Machine(chosen, number or _asked_gpus(config)), False


def _asked_gpus(config: StarPOConfig) -> int:
    ranks = config.update.deepspeed.num_ranks if config.update.learner == "deepspeed" else 1
    vllm = config.rollout.vllm
    return max(ranks, vllm.num_engines * vllm.tensor_parallel_size if config.rollout.engine == "vllm" else 1)


def _facts(
    name: str, config: StarPOConfig, found: Estimate, reasons: list[str], helpful: list[dict[str, Any]]
) -> dict[str, Any]:
    architecture, memory = found.architecture, found.memory
    return {
        "preset": name,
        "policy": _policy_name(config),
        "parameters": architecture.num_parameters,
        "trained_parameters": found.num_trained,
        "architecture": asdict(architecture),
        "machine": {
            "device": found.machine.device.name,
            "number": found.machine.number,
            "memory_bytes": found.machine.device.memory_bytes,
        },
        "gpus_needed": found.num_gpus,
        "peak_bytes": memory.peak_bytes,
        "memory": {
            phase: [asdict(part) for part in getattr(memory, phase)] for phase in ("always", "rollout", "update")
        },
        "host_memory": [asdict(part) for part in found.host],
        "tokens_an_iteration": {
            **asdict(found.tokens),
            "decoded": found.tokens.decoded,
            "trained": found.tokens.trained,
        },
        "seconds_an_iteration": asdict(found.seconds),
        "iterations": config.iterations,
        "storage_bytes": {
            **found.storage,
            "a_checkpoint": checkpoint_bytes(config, architecture),
            "checkpoints_kept": num_kept_checkpoints(config),
        },
        "fits": not reasons,
        "reasons": reasons,
        "would_fit_with": helpful,
    }


def _print_tables(name: str, config: StarPOConfig, found: Estimate, is_this: bool) -> None:
    console, device_, memory = Console(), found.machine.device, found.memory
    where = "this machine" if is_this else f"{found.machine.number} x {device_.name}"
    phases = {"always": memory.always, "in a rollout": memory.rollout, "in an update": memory.update}
    rows = [
        {"when": phase, "what": part.name, "size": _size(part.size_bytes), "how": part.formula}
        for phase, parts in {**phases, "in the host's memory": found.host}.items()
        for part in parts
    ]
    limit = f"of {_size(device_.memory_bytes)} on {where}"
    rows.append({"when": "", "what": "peak", "size": _size(memory.peak_bytes), "how": limit})
    print_table(console, rows, title=f"{name}: memory {_where(found)}", numbers=("size",))
    tokens, seconds, storage = found.tokens, found.seconds, found.storage
    total = config.num_rollouts * seconds.rollout + config.iterations * seconds.update
    lines = {
        "policy": f"{_policy_name(config)}: {_count(found.architecture)}; "
        + ", ".join(f"{name} trains {number:,}" for name, number in found.num_trained.items()),
        "GPUs": f"{found.num_gpus}, shared by engine and learner" if found.num_gpus else "none: all on the CPU",
        "tokens": f"per iteration: {tokens.num_trajectories} trajectories of about {tokens.prompt:.0f} prompt and "
        f"{tokens.response:.0f} response tokens; {tokens.trained:,.0f} trained on; longest context "
        f"{tokens.longest_context:,}",
        "time": f"per iteration: rollout {_seconds(seconds.rollout)}, update {_seconds(seconds.update)}; "
        f"{counted(config.iterations, 'iteration')}: {_seconds(total)}; "
        "evaluations, environments and storage not counted",
        "by": f"{seconds.decoded_tokens_s:,.0f} tokens/s decoded, {seconds.trained_tokens_s:,.0f} tokens/s trained "
        f"({seconds.assumption})",
        "storage": f"{_size(sum(storage.values()))}: {num_kept_checkpoints(config)} checkpoints kept, "
        f"{_size(checkpoint_bytes(config, found.architecture))} each; datasets {_size(storage['datasets'])}",
    }
    for label, text in lines.items():
        say(console, f"{label:<8} {text}")


def _where(found: Estimate) -> str:
    return "of the machine" if found.machine.device.is_cpu else "of one GPU"


def _policy_name(config: StarPOConfig) -> str:
    return config.policy.name_or_path if config.policy.type == "pretrained" else "the embedded policy"


def _count(architecture: Architecture) -> str:
    return f"{architecture.num_parameters:,} parameters"


def _size(size_bytes: float) -> str:
    if size_bytes < MIB / 10:
        return f"{size_bytes / 1024:.1f} KiB"
    if size_bytes < GIB / 10:
        return f"{size_bytes / MIB:.1f} MiB"
    return f"{size_bytes / GIB:.2f} GiB" if size_bytes < 100 * GIB else f"{size_bytes / GIB:.0f} GiB"


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return "under a second"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
