"""README cards of published folders: provenance, by digests, and the settings of the run.

facts, settings -> README.md of a folder

All data of a run is inside fenced JSON, so that none of its text can act as markup. No licence is stated: the run does
not know who owns the rights to a policy or its texts.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from starpo.ragen.core.redaction import hidden_if_secret, without_secrets
from starpo.ragen.core.visible import visible
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import attempts, numbered
from starpo.ragen.store.records.runs import Run

_CARD = "README.md"
_TAGS = ["starpo", "agents"]
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def write_model_card(folder: Path, run: Run, checkpoint: Mapping[str, Any]) -> None:
    """Write the card of a checkpoint's folder.

    Args:
        folder: Folder of the checkpoint.
        run: Run that produced the checkpoint.
        checkpoint: Its `iteration`, `key` and content `digest`.
    """
    head: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": _TAGS}
    if base := _base_model(run.stated):
        head["base_model"] = base
    facts = {**_of(run), **checkpoint}
    title = f"Checkpoint {checkpoint['iteration']} of run {run.name}"
    about = (
        f"A policy after {checkpoint['iteration']} updates. `initial_states.json`, if present, holds digests of the "
        "states from which its training started: leave them out of evaluations."
    )
    _write(folder / _CARD, _front(head), title, about, facts, run.stated)


def write_dataset_card(folder: Path, store: Store, run: Run, form: str, iterations: Sequence[int]) -> None:
    """Write the card of an export, keeping the YAML front matter of an existing one.

    Args:
        folder: Folder of the export.
        store: Store that holds the run.
        run: Run that produced the trajectories.
        form: Format of the export.
        iterations: Exported iterations.

    Raises:
        StoreError: If the run cannot be read.
    """
    recorded = store.runs.iterations(run.name)
    digests = {
        numbered(str(iteration), number): store.manifest("turns", attempt["rollout"]["turns"]).content_digest
        for iteration in iterations
        for number, attempt in enumerate(attempts(recorded[iteration]))
    }
    card = folder / _CARD
    front = _front({"tags": _TAGS, "pretty_name": f"Trajectories of run {run.name}"})
    if card.is_file():
        front = "".join(card.read_text(encoding="utf-8").partition("\n---\n")[:2]) + "\n"
    title = f"Trajectories of run {run.name}"
    about = "Texts are a model's: untrusted. `turns` holds the digest of every iteration's rollout."
    _write(card, front, title, about, {**_of(run), "format": form, "turns": digests}, run.stated)


def _of(run: Run) -> dict[str, Any]:
    environment = run.stated.get("environment", {}).get("type")
    return {"run": run.name, "flow": run.flow, "preset": run.preset, "environment": environment}


def _front(head: Mapping[str, Any]) -> str:
    """Format YAML front matter; its values are JSON, a subset of YAML."""
    return "\n".join(["---", *(f"{name}: {json.dumps(value)}" for name, value in head.items()), "---", ""])


def _write(
    card: Path, front: str, title: str, about: str, facts: Mapping[str, Any], settings: Mapping[str, Any]
) -> None:
    sections = [f"# {title}", about, "## Where it comes from", _fenced(facts), "## Settings", _fenced(settings)]
    card.write_text(front + "\n" + "\n\n".join(sections) + "\n", encoding="utf-8")


def _fenced(value: Mapping[str, Any]) -> str:
    text = visible(json.dumps(_without_secrets(value), indent=2, sort_keys=True, ensure_ascii=False))
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}json\n{text}\n{fence}"


def _without_secrets(value: Any, name: str = "") -> Any:
    match value:
        case Mapping():
            return {key: _without_secrets(item, str(key)) for key, item in value.items()}
        case list() | tuple():
            return [_without_secrets(item, name) for item in value]
        case str():
            return hidden_if_secret(name, without_secrets(value))
        case _:
            return value


def _base_model(config: Mapping[str, Any]) -> str | None:
    """Return the Hub name of the initial model; None if it is a local folder or the embedded policy."""
    name = config.get("policy", {}).get("name_or_path")
    is_named = isinstance(name, str) and _HUB_NAME.fullmatch(name) and not Path(name).exists()
    return name if is_named else None
