"""Loading policies: any Hugging Face causal language model, from a local folder or by its name on the hub.

A folder is checked before it is passed to transformers, whose reaction to an incomplete one (random initialisation of
missing weights, a traceback of forty lines) is worse than an error. Only safetensors are read, and code that comes with
a model is never run.

    PretrainedPolicy -> resolve_policy -> local folder -> load_policy, load_tokenizer, copy_policy
"""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

from starpo.ragen.agents.policy.adapter import ADAPTER_CONFIG, ADAPTER_WEIGHTS, merge, read_shape
from starpo.ragen.agents.policy.place import named_folder
from starpo.ragen.config.policy import PretrainedPolicy, folder_digest
from starpo.ragen.core.errors import PolicyError

_CONFIG = "config.json"
_WEIGHTS = "model.safetensors"
_WEIGHTS_INDEX = "model.safetensors.index.json"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
_GENERIC_TOKENIZERS = ("TokenizersBackend", "PreTrainedTokenizerFast")
_DOWNLOADED = ("*.json", "*.safetensors", "*.jinja", "tokenizer.model", "vocab.txt", "merges.txt")
_TWICE = ("consolidated*", "original/*")  # the same weights once more, in another layout


def resolve_policy(policy: PretrainedPolicy) -> str:
    """Find the folder that a policy's name or path refers to, downloading it if it is a name on the hub.

    Returns:
        A local folder with a config, weights in safetensors and a tokenizer.

    Raises:
        PolicyError: If there is no such folder or model, the hub does not respond, the folder is incomplete, or the
            digest of its files differs from `policy.digest`.
    """
    folder = named_folder(policy) or Path(_download(policy.name_or_path, policy.revision))
    check_folder(folder)
    found = folder_digest(folder) if policy.digest else ""
    if found != policy.digest:
        raise PolicyError(
            f"the files in '{folder}' have changed: they have the digest {found}, but policy.digest is "
            f"{policy.digest}. Restore the original files, or leave policy.digest out of the settings to use the files "
            "as they are now"
        )
    return str(folder)


def check_folder(folder: str | Path) -> None:
    """Check that a folder has a config, weights in safetensors and a tokenizer, without reading them.

    Raises:
        PolicyError: If a part is missing; the message names it.
    """
    path = _existing_folder(folder)
    if not (path / _CONFIG).is_file():
        raise PolicyError(f"'{folder}' has no {_CONFIG}, so it is not a model in Hugging Face's layout")
    expected = [_WEIGHTS]
    if (path / _WEIGHTS_INDEX).is_file():
        try:
            expected = sorted(set(json.loads((path / _WEIGHTS_INDEX).read_text())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise PolicyError(f"'{path / _WEIGHTS_INDEX}' is damaged: {_first_line(error)}; fetch it again") from error
    missing = [name for name in expected if not (path / name).is_file()]
    if missing:
        hint = "the download or copy is incomplete"
        if any(path.glob("*.bin")) or any(path.glob("*.pt")):
            hint = "pickled weights (.bin, .pt) are not read; save them again with model.save_pretrained(folder)"
        raise PolicyError(f"'{folder}' has no weights {', '.join(missing[:3])}: {hint}")
    if not any((path / name).is_file() for name in _TOKENIZERS):
        load_tokenizer(path)  # raises with the appropriate message


def load_tokenizer(folder: str | Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a policy's folder.

    Raises:
        PolicyError: If there is no such folder, or no readable tokenizer in it.
    """
    path = _existing_folder(folder)
    if not any((path / name).is_file() for name in _TOKENIZERS):
        raise PolicyError(
            f"'{folder}' has no tokenizer (none of {', '.join(_TOKENIZERS)}); a policy is stored with its tokenizer: "
            "write it there with tokenizer.save_pretrained(folder)"
        )
    try:
        return _tokenizer_class(path).from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the tokenizers library raises bare `Exception` for a damaged tokenizer.json
        raise PolicyError(f"the tokenizer in '{folder}' cannot be read: {_first_line(error)}") from error


def load_policy(
    folder: str | Path, dtype: str | torch.dtype = torch.float32, *, should_merge: bool = True
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a policy from a local folder in Hugging Face's layout.

    Args:
        folder: Contains `config.json`, `model.safetensors` (or its shards and their index) and tokenizer files.
        dtype: Type of the weights in memory: 'float32', 'bfloat16' or a torch dtype.
        should_merge: Merge the LoRA adapter in the folder, if any, into the weights; otherwise ignore it.

    Returns:
        The model on the CPU in evaluation mode, and its tokenizer. The global random state is unchanged.

    Raises:
        PolicyError: If a file is missing or damaged, if weights are missing or have the wrong shape, or if the
            architecture is not a causal language model supported by transformers.
    """
    check_folder(folder)
    tokenizer = load_tokenizer(folder)
    model: PreTrainedModel
    loading: dict[str, Any]
    try:
        with torch.random.fork_rng(devices=[]), without_progress_bars(), _without_adapter(folder) as weights:
            model, loading = AutoModelForCausalLM.from_pretrained(
                weights,
                dtype=dtype,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,  # they are reported below, together with missing weights, in one line
                output_loading_info=True,
            )  # type: ignore[misc]  # annotated as if output_loading_info did not exist
    except (ValueError, OSError, KeyError, RuntimeError, TypeError, SafetensorError) as error:
        raise PolicyError(f"'{folder}' cannot be loaded as a causal language model: {_first_line(error)}") from error
    _check_weights(folder, loading)
    if should_merge and read_shape(folder) is not None:
        model.load_state_dict(merge(model.state_dict(), folder))
    if len(tokenizer) > model.config.vocab_size:
        raise PolicyError(
            f"'{folder}': the tokenizer has {len(tokenizer)} tokens and the model only {model.config.vocab_size}; "
            "they do not belong together"
        )
    return model.eval(), tokenizer


def save_policy(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: str | Path) -> None:
    """Write config, weights (safetensors) and tokenizer into a local folder that `load_policy` can read."""
    with without_progress_bars():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Suppress transformers' progress bars, for files and for weights, in logs and terminals.

    Also silence DeepSpeed, if installed, which accelerate imports when a model is saved: without a GPU it prints a
    warning to standard output, mixed into a command's output, unless DS_ACCELERATOR is set to 'cpu'.
    """
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()


def copy_policy(policy: PretrainedPolicy, folder: str | Path) -> dict[str, float]:
    """Load a pretrained policy and save it as the first checkpoint of a run: config, safetensors, tokenizer.

    Args:
        policy: Its location, and the dtype in which its weights are kept.
        folder: Local and empty.

    Returns:
        Headline numbers: `num_parameters`, `vocabulary_size`.

    Raises:
        PolicyError: As for `resolve_policy` and `load_policy`.
    """
    model, tokenizer = load_policy(resolve_policy(policy), policy.dtype)
    save_policy(model, tokenizer, folder)
    return {"num_parameters": float(model.num_parameters()), "vocabulary_size": float(len(tokenizer))}


def _download(name: str, revision: str | None) -> str:
    what = f"'{name}'" + (f" at revision '{revision}'" if revision else "")
    try:
        wanted, left_out = list(_DOWNLOADED), list(_TWICE)
        return snapshot_download(name, revision=revision, allow_patterns=wanted, ignore_patterns=left_out)
    except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as error:
        raise PolicyError(
            f"policy.name_or_path: neither a local folder nor a model that can be read on the hub: {what}; check "
            "the name (a private model needs HF_TOKEN to be set)"
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise PolicyError(
            f"the Hugging Face hub does not answer, and {what} is not in the local cache. Download it first where "
            f"there is a network (`hf download {name}`) and give the folder as policy.name_or_path, or use the "
            "embedded policy, which needs no download: policy.type = 'tiny'"
        ) from error


def _existing_folder(folder: str | Path) -> Path:
    path = Path(folder)
    if not path.is_dir():
        found = "a file, not a folder" if path.exists() else "not there"
        raise PolicyError(
            f"the policy's folder '{folder}' is {found}; expected a folder with {_CONFIG}, safetensors and a tokenizer"
        )
    return path


def _tokenizer_class(path: Path) -> type[AutoTokenizer] | type[PreTrainedTokenizerFast]:
    """Return `AutoTokenizer`, or the generic class if the folder declares it.

    For some architectures, Qwen2 among them, AutoTokenizer overrides the declared class and then splits text by that
    architecture's own rule instead of the one in tokenizer.json: a different tokenizer, without a warning. (The
    embedded policy's folder prevents this; other folders, and those made before 2026-11-23, do not.)
    """
    declared = path / "tokenizer_config.json"
    name = json.loads(declared.read_text()).get("tokenizer_class") if declared.is_file() else None
    return PreTrainedTokenizerFast if name in _GENERIC_TOKENIZERS else AutoTokenizer


@contextmanager
def _without_adapter(folder: str | Path) -> Iterator[str | Path]:
    """Provide the folder, or if it has an adapter a folder of links to all its other files.

    If PEFT is installed, transformers loads an adapter that it finds into the model, and its releases share no option
    to prevent that.
    """
    if not (Path(folder) / ADAPTER_CONFIG).exists():
        yield folder
        return
    with tempfile.TemporaryDirectory() as links:
        for file in Path(folder).iterdir():
            if file.name not in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
                (Path(links) / file.name).symlink_to(file.resolve())
        yield links


def _check_weights(folder: str | Path, loading: dict[str, Any]) -> None:
    missing = sorted(map(str, loading["missing_keys"]))
    mismatched = sorted(str(entry[0] if isinstance(entry, tuple) else entry) for entry in loading["mismatched_keys"])
    for keys, what in ((missing, "are missing"), (mismatched, "do not have the shape that config.json asks for")):
        if keys:
            more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
            raise PolicyError(
                f"'{folder}': weights {what}: {', '.join(keys[:3])}{more}; config and weights do not belong together"
            )


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
