"""`starpo plan`: resources that a run will need, by component, and whether it fits."""

from dataclasses import replace
from typing import Annotated

import typer
from rich.text import Text

from starpo.flows.cli.options import JsonOption, MethodOption, SetOption, StoreOption, open_store, parse_overrides
from starpo.flows.console.documents.planning import Plan
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, say
from starpo.flows.presets import preset as load_preset
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.context_fit import context_fits, worst_misfit
from starpo.ragen.core.counts import counted
from starpo.ragen.core.errors import ConfigError, StarPOError
from starpo.ragen.evidence.cost import in_words
from starpo.ragen.evidence.pace import pace_of
from starpo.ragen.sizing.architecture import Architecture, architecture_of
from starpo.ragen.sizing.device import GIB, MIB, Machine, host_memory, parse_bytes, this_cpu, this_machine
from starpo.ragen.sizing.estimate import Estimate, estimate, num_gpus
from starpo.ragen.sizing.fit import ADVICE, misfits
from starpo.ragen.sizing.hours import run_seconds
from starpo.ragen.sizing.storage import checkpoint_bytes, num_kept_checkpoints


def plan(
    preset: Annotated[str, typer.Argument(help="Preset, or a TOML file of settings.")],
    set_: SetOption = None,
    method: MethodOption = None,
    gpus: Annotated[
        int | None, typer.Option(min=0, help="Number of GPUs; 0: the CPU. Default: what this machine has.")
    ] = None,
    gpu_memory: Annotated[
        str | None, typer.Option(help="Memory of each GPU, such as 80GB. Default: that of this machine's.")
    ] = None,
    speed_of: Annotated[
        str | None, typer.Option(metavar="RUN", help="Stored run whose measured speed the hours are from.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate what a run will need (memory by component, GPUs, tokens, storage, hours), and whether it fits."""
    config = load_preset(preset, parse_overrides(set_, method))
    architecture = architecture_of(config)
    machine = _machine(config, gpus, gpu_memory)
    is_this = gpus is None and gpu_memory is None
    needs = estimate(config, architecture, machine)
    seconds = run_seconds(config, pace_of(open_store(store), speed_of)) if speed_of else None
    reasons = misfits(needs, host_memory() if is_this else None)
    is_too_large = bool(reasons)
    reasons += _full_contexts(config)
    if as_json:
        print_json(_document(preset, config, needs, seconds, reasons))
        return
    _print_tables(preset, config, needs, is_this)
    say(Console(), f"{'time':<8} {_time(preset, speed_of, seconds)}")
    console = Console()
    if not reasons:
        console.print("It fits.", style="green")
        return
    console.print(Text(f"It does not fit: {'; '.join(reasons)}.", style="red"), soft_wrap=True)
    if is_too_large:
        say(console, ADVICE)


def _full_contexts(config: StarPOConfig) -> list[str]:
    """Return why prompts and responses do not fit into the context, if so; `validate` names faults of the model."""
    try:
        misfit = worst_misfit(context_fits(config))
    except StarPOError:
        return []
    return [misfit] if misfit else []


def _machine(config: StarPOConfig, gpus: int | None, gpu_memory: str | None) -> Machine:
    """Return the machine to plan for: this one, with what is given in place of its own.

    Raises:
        ConfigError: If GPUs are asked for, this machine has none, and their memory is not given.
    """
    memory = None if gpu_memory is None else parse_bytes(gpu_memory)
    if gpus == 0:
        return this_cpu() if memory is None else replace(this_cpu(), memory_bytes=memory)
    here = this_machine()
    if memory is None and gpus is None:
        return here
    if memory is None and here.is_cpu:
        raise ConfigError("this machine has no GPU whose memory could be taken: give --gpu-memory, such as 80GB")
    return Machine(memory or here.memory_bytes, gpus or num_gpus(config))


def _document(
    name: str,
    config: StarPOConfig,
    needs: Estimate,
    seconds: dict[str, float] | None,
    reasons: list[str],
) -> Plan:
    architecture, memory = needs.architecture, needs.memory
    return Plan(
        preset=name,
        policy=_policy_name(config),
        parameters=architecture.num_parameters,
        trained_parameters=needs.num_trained,
        architecture=architecture,
        machine=needs.machine,
        gpus_needed=needs.num_gpus,
        peak_bytes=memory.peak_bytes,
        memory=memory,
        host_memory=needs.host,
        tokens_an_iteration=needs.tokens,
        seconds=seconds,
        iterations=config.iterations,
        storage_bytes={
            **needs.storage,
            "a_checkpoint": checkpoint_bytes(config, architecture),
            "checkpoints_kept": num_kept_checkpoints(config, architecture),
        },
        fits=not reasons,
        reasons=reasons,
    )


def _print_tables(name: str, config: StarPOConfig, needs: Estimate, is_this: bool) -> None:
    console, machine, memory = Console(), needs.machine, needs.memory
    where = "this machine" if is_this else "a CPU" if machine.is_cpu else f"each of {counted(machine.number, 'GPU')}"
    phases = {
        "always": memory.always,
        "in a rollout": memory.rollout,
        "in an update": memory.update,
        "in the warm start" if config.policy.type == "tiny" else "in fine-tuning": memory.imitation,
    }
    rows = [
        {"when": phase, "what": part.name, "size": _size(part.size_bytes), "how": part.formula}
        for phase, parts in {**phases, "in the host's memory": needs.host}.items()
        for part in parts
    ]
    limit = f"of {_size(machine.memory_bytes)} on {where}"
    rows.append({"when": "", "what": "peak", "size": _size(memory.peak_bytes), "how": limit})
    print_table(console, rows, title=f"{name}: memory {_where(needs)}", numbers=("size",))
    tokens, storage = needs.tokens, needs.storage
    lines = {
        "policy": f"{_policy_name(config)}: {_count(needs.architecture)}; "
        + ", ".join(f"{name} trains {number:,}" for name, number in needs.num_trained.items()),
        "GPUs": f"{needs.num_gpus}, shared by engine and learner" if needs.num_gpus else "none: all on the CPU",
        "tokens": f"per iteration: {tokens.num_trajectories} trajectories of about {tokens.prompt:.0f} prompt and "
        f"{tokens.response:.0f} response tokens; longest context {tokens.longest_context:,}",
        "storage": f"{_size(sum(storage.values()))}: "
        f"{num_kept_checkpoints(config, needs.architecture)} checkpoints kept, "
        f"{_size(checkpoint_bytes(config, needs.architecture))} each; datasets {_size(storage['datasets'])}",
    }
    if tokens.image:
        lines["images"] = f"{tokens.image} tokens each in the prompt, one a turn"
    for label, text in lines.items():
        say(console, f"{label:<8} {text}")


def _time(name: str, run: str | None, seconds: dict[str, float] | None) -> str:
    if seconds is None:
        return (
            f"no speed is measured: --speed-of RUN takes that of a stored run, such as one by `starpo train {name} "
            "--iterations 2`"
        )
    return f"about {in_words(seconds)} at the speed of run '{run}'; rewards and storing not counted"


def _where(needs: Estimate) -> str:
    return "of the machine" if needs.machine.is_cpu else "of one GPU"


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
