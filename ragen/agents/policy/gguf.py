"""A Hugging Face folder made from a GGUF file, once for each content.

    GGUF file -> <cache>/starpo/models/<digest>/{config.json, model.safetensors, tokenizer files}

Weights are dequantised to float32, which holds them exactly. The folder says nothing of quantisation, so every reader
of Hugging Face's layout takes it as it is.
"""

import contextlib
import io
import tempfile
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from starpo.ragen.agents.policy.folder import check_folder, refusing
from starpo.ragen.agents.policy.links import link
from starpo.ragen.agents.policy.save import save_policy, without_progress_bars
from starpo.ragen.config.model_files import model_digest, models_cache
from starpo.ragen.core.errors import MissingPackageError

_PACKAGES = ("gguf", "accelerate")
_OF_THE_FILE = ("quantization_config", "_name_or_path", "_model_name_or_path")


def converted_folder(file: Path) -> Path:
    """Return the folder of a GGUF file's content; it may be deleted at any time, and is then made again.

    Raises:
        MissingPackageError: If the packages that read GGUF files are not installed.
        PolicyError: If the file is truncated or damaged, or its architecture or quantisation is not supported.
    """
    folder = models_cache() / model_digest(file)
    if folder.is_dir():
        return folder
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingPackageError(
            f"policy.name_or_path: reading '{file}' needs {' and '.join(missing)}: pip install 'starpo[gguf]'"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".made-") as temporary:
        alone, made = Path(temporary) / "alone", Path(temporary) / "made"
        alone.mkdir()
        link(alone / "model.gguf", file)
        # transformers draws a progress bar over the tensors, with no setting against it
        what = f"the GGUF file '{file}' cannot be read (is it complete, and does transformers know its architecture?)"
        with refusing(what), contextlib.redirect_stderr(io.StringIO()):
            _convert(alone, made)
        check_folder(made)
        with contextlib.suppress(OSError):  # another process was first
            made.rename(folder)
    return folder


def _convert(source: Path, target: Path) -> None:
    """Convert `model.gguf` in one folder to another folder in Hugging Face's layout."""
    with torch.random.fork_rng(devices=[]), without_progress_bars():
        loaded = AutoModelForCausalLM.from_pretrained(
            source, gguf_file="model.gguf", dtype=torch.float32, local_files_only=True, trust_remote_code=False
        )
        settings = {name: value for name, value in loaded.config.to_dict().items() if name not in _OF_THE_FILE}
        with torch.device("meta"):
            model = type(loaded)(type(loaded.config)(**settings))
        model.load_state_dict(loaded.state_dict(), assign=True)
        model.tie_weights()
        tokenizer = AutoTokenizer.from_pretrained(
            source, gguf_file="model.gguf", local_files_only=True, trust_remote_code=False
        )
    save_policy(model, tokenizer, target)
