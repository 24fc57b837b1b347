"""Loading policies: any Hugging Face causal language model, from a local folder that `check_folder` accepts.

Only safetensors are read, and code that comes with a model is never run.

    local folder (`ragen.agents.policy.source`) -> load_policy, load_tokenizer
    PretrainedPolicy -> load_pretrained, copy_policy
"""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from starpo.ragen.agents.policy.adapter import ADAPTER_CONFIG, ADAPTER_WEIGHTS, read_shape
from starpo.ragen.agents.policy.folder import (
    check_folder,
    check_tokenizer_files,
    declared_end_ids,
    existing_folder,
    output_layer_error,
    read_config,
    refusing,
    vocabulary_size,
)
from starpo.ragen.agents.policy.links import link
from starpo.ragen.agents.policy.save import save_policy, without_progress_bars
from starpo.ragen.agents.vision.families import family_of
from starpo.ragen.agents.vision.image_tokens import MODEL_TYPE
from starpo.ragen.config.model_files import CONFIG
from starpo.ragen.config.policy import PretrainedPolicy
from starpo.ragen.core.errors import PolicyError

_GENERIC_TOKENIZERS = ("TokenizersBackend", "PreTrainedTokenizerFast")
_PROBE = "a  B\n\n 1.5 \u00e9<x>"
"""Encoded once, since a damaged pattern in tokenizer.json may fail only there."""


def load_tokenizer(folder: str | Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a policy's folder.

    Returns:
        The tokenizer. Its attribute `declared_end_ids` holds the end tokens that the model's configuration declares,
        id -> file: a response ends at each of them (`ragen.agents.prompting.template`). `image_tokens` holds the tokens
        of an image (`ragen.agents.vision.image_tokens`), or None if the model sees none.

    Raises:
        PolicyError: If there is no such folder, no readable tokenizer in it, or one with more tokens than the model
            beside it.
    """
    path = existing_folder(folder)
    check_tokenizer_files(path)
    with refusing(f"the tokenizer in '{folder}' cannot be read"):
        tokenizer: PreTrainedTokenizerBase
        tokenizer = _tokenizer_class(path).from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        tokenizer.encode(_PROBE, add_special_tokens=False)
    size = vocabulary_size(path)
    if size is not None and len(tokenizer) > size:
        raise PolicyError(
            f"'{folder}': the tokenizer has {len(tokenizer):,} tokens and the model only {size:,}; they do not belong "
            "together"
        )
    tokenizer.declared_end_ids = declared_end_ids(path)
    config = read_config(path) if (path / CONFIG).is_file() else {}
    family = family_of(config)
    tokenizer.image_tokens = family and family.image_tokens(config, tokenizer, family.processor(path))
    return tokenizer


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
    tokenizer, config = load_tokenizer(folder), read_config(Path(folder))
    model: PreTrainedModel
    loading: dict[str, Any]
    with (
        refusing(f"'{folder}' cannot be loaded as a causal language model"),
        torch.random.fork_rng(devices=[]),
        without_progress_bars(),
        _without_adapter(folder) as weights,
    ):
        model, loading = model_class(config).from_pretrained(
            weights,
            dtype=dtype,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,  # they are reported below, together with missing weights, in one line
            output_loading_info=True,
        )
    _check_weights(folder, loading)
    if model.config.tie_word_embeddings and not _is_tied(model):
        raise output_layer_error(folder)
    if family := family_of(config):
        model.base_model.image_processor = family.processor(Path(folder))
    if should_merge and read_shape(folder) is not None:
        from starpo.ragen.agents.policy.merged_weights import merge

        model.load_state_dict(merge(model.state_dict(), folder))
    return model.eval(), tokenizer


def load_pretrained(
    policy: PretrainedPolicy, dtype: str | torch.dtype
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Resolve and load the policy that a run starts from, and compute the logits of a short text once.

    Raises:
        PolicyError: As for `resolve_policy` and `load_policy`, or if a logit is not finite.
    """
    from starpo.ragen.agents.policy.source import resolve_policy  # may download, which no checkpoint needs

    folder = resolve_policy(policy)
    model, tokenizer = load_policy(folder, dtype)
    ids = tokenizer.encode(_PROBE, add_special_tokens=False)
    with torch.inference_mode(), refusing(f"the model in '{folder}' cannot compute the logits of a text"):
        logits_TV = model(input_ids=torch.tensor([ids])).logits[0]
    is_bad_TV = ~torch.isfinite(logits_TV)
    if is_bad_TV.any():
        raise PolicyError(
            f"the model in '{folder}' gives {int(is_bad_TV.sum()):,} of {is_bad_TV.numel():,} logits of a short text "
            f"that are not finite, such as {logits_TV[is_bad_TV][0].item()}, before any training: its weights are "
            "damaged, it overflows in this dtype (policy.dtype = 'float32'), or it rules tokens out with -inf, which "
            "has no gradient"
        )
    return model, tokenizer


def copy_policy(policy: PretrainedPolicy, folder: str | Path) -> dict[str, float]:
    """Load a pretrained policy and save it as the first checkpoint of a run: config, safetensors, tokenizer.

    Args:
        policy: Its location, and the dtype in which its weights are kept.
        folder: Local and empty.

    Returns:
        Headline numbers: `num_parameters`, `vocabulary_size`.

    Raises:
        PolicyError: As for `load_pretrained`.
    """
    model, tokenizer = load_pretrained(policy, policy.dtype)
    save_policy(model, tokenizer, folder)
    return {"num_parameters": float(model.num_parameters()), "vocabulary_size": float(len(tokenizer))}


def _tokenizer_class(path: Path) -> type[AutoTokenizer] | type[PreTrainedTokenizerFast]:
    """Return `AutoTokenizer`, or the generic class if the folder declares it.

    For some architectures, Qwen2 among them, AutoTokenizer overrides the declared class and then splits text by that
    architecture's own rule instead of the one in tokenizer.json: a different tokenizer, without a warning. (The
    embedded policy's folder prevents this; other folders do not.)
    """
    declared = path / "tokenizer_config.json"
    name = json.loads(declared.read_text(encoding="utf-8")).get("tokenizer_class") if declared.is_file() else None
    return PreTrainedTokenizerFast if name in _GENERIC_TOKENIZERS else AutoTokenizer


def model_class(config: Mapping[str, Any]) -> Any:
    """Return transformers' class for a model's `config.json`: one with images where its family is supported, whose
    architecture is then registered."""
    if family_of(config) is None or config["model_type"] == MODEL_TYPE:
        return AutoModelForCausalLM
    return AutoModelForImageTextToText


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
                link(Path(links) / file.name, file)
        yield links


def _is_tied(model: PreTrainedModel) -> bool:
    head, embeddings = model.get_output_embeddings(), model.get_input_embeddings()
    return head is None or head.weight is embeddings.weight


def _check_weights(folder: str | Path, loading: dict[str, Any]) -> None:
    missing = sorted(map(str, loading["missing_keys"]))
    mismatched = sorted(str(entry[0] if isinstance(entry, tuple) else entry) for entry in loading["mismatched_keys"])
    for keys, what in ((missing, "are missing"), (mismatched, "do not have the shape that config.json asks for")):
        if keys:
            more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
            raise PolicyError(
                f"'{folder}': weights {what}: {', '.join(keys[:3])}{more}; config and weights do not belong together"
            )
