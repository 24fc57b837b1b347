"""What a policy's folder says: checked before anything is built from it, so that all readers understand it alike.

    config.json, generation_config.json    sizes, end tokens, positions
    safetensors                            names, shapes and, of a tied output layer, values
    tokenizer files                        present, and of a sane size

Whoever reads a folder (torch engine, vLLM, learner, export, probe, `starpo plan`) relies on this check. It imports
neither torch nor transformers, whose reactions to a wrong folder (random weights, a traceback of forty lines, hours of
building) are worse than an error.
"""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from starpo.ragen.config.model_files import CONFIG, read_object, weight_files
from starpo.ragen.core.errors import PolicyError, named_line

GENERATION_CONFIG = "generation_config.json"
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
_NUM_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
_WIDTHS = ("hidden_size", "n_embd", "d_model")
_SIZES = (
    "vocab_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "n_head", "n_inner",
)  # fmt: skip
_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len")
_MAX_POSITIONS = 1 << 24
_ATTENTION = (None, "eager", "sdpa")
_MAX_ADDED_TOKENS = 50_000
_MAX_HEADER_BYTES = 100_000_000  # as in the safetensors library
_EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "embed_in.weight")
_HEADS = ("lm_head.weight", "embed_out.weight")


class StoredTensor(NamedTuple):
    """A tensor as a file's header describes it: `start` and `end` are bytes from the beginning of the file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def check_folder(folder: str | Path) -> None:
    """Check that a folder has a config, weights and a tokenizer that fit together and are understood in one way.

    Raises:
        PolicyError: If a part is missing or damaged; if the configuration is not of plain positive sizes, or asks for
            more than the weights hold, for quantised weights, or for anything to be fetched; if the configuration ties
            the output layer to the embeddings and the weights have another one.
    """
    path = existing_folder(folder)
    config = read_config(path)
    _check_requests(path, config)
    tensors = describe_tensors(path)
    _check_sizes(path, config, tensors)
    _check_output_layer(path, config, tensors)
    check_tokenizer_files(path)


def existing_folder(folder: str | Path) -> Path:
    """Return the path of a folder.

    Raises:
        PolicyError: If it is not there, or a file.
    """
    path = Path(folder)
    if not path.is_dir():
        state = "a file, not a folder" if path.exists() else "not there"
        raise PolicyError(
            f"the policy's folder '{folder}' is {state}; expected a folder with {CONFIG}, safetensors and a tokenizer"
        )
    return path


def read_config(folder: Path) -> dict[str, Any]:
    """Read `config.json`.

    Raises:
        PolicyError: If it is missing or damaged.
    """
    if not (folder / CONFIG).is_file():
        raise PolicyError(f"'{folder}' has no {CONFIG}, so it is not a model in Hugging Face's layout")
    return read_object(folder / CONFIG)


def check_tokenizer_files(folder: Path) -> None:
    """Check that a folder has a tokenizer, without loading it.

    Raises:
        PolicyError: If it has none, or one with more added tokens than any model has: each costs time at every start.
    """
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise PolicyError(
            f"'{folder}' has no tokenizer (none of {', '.join(TOKENIZERS)}); a policy is stored with its tokenizer: "
            "write it there with tokenizer.save_pretrained(folder)"
        )
    marks = {"tokenizer.json": b'"single_word"', "tokenizer_config.json": b'"content"', "added_tokens.json": b":"}
    for name, mark in marks.items():
        file = folder / name
        count = file.read_bytes().count(mark) if file.is_file() else 0
        if count > _MAX_ADDED_TOKENS:
            raise PolicyError(
                f"'{file}' adds {count:,} tokens to the vocabulary; at most {_MAX_ADDED_TOKENS:,} are read. This is "
                "not the tokenizer of a language model: fetch the model again, or take another one"
            )


def declared_end_ids(folder: str | Path) -> dict[int, str]:
    """Return the end tokens that a model's configuration declares: id -> file, in the order of generation_config.json,
    then config.json.

    Raises:
        PolicyError: If a file is damaged, or declares something other than token ids.
    """
    end_ids: dict[int, str] = {}
    for name in (GENERATION_CONFIG, CONFIG):
        file = Path(folder) / name
        declared = read_object(file).get("eos_token_id") if file.is_file() else None
        ids = declared if isinstance(declared, list) else [declared]
        for end in ids:
            if end is not None and not _is_count(end):
                raise PolicyError(
                    f"'{file}': eos_token_id = {json.dumps(declared)[:80]} is neither a token id nor a list of ids; "
                    "correct it"
                )
            if end is not None:
                end_ids.setdefault(end, name)
    return end_ids


def num_positions(folder: str | Path) -> int | None:
    """Return the number of positions that a model was made for, prompt and response together; None if its
    configuration does not say.

    Raises:
        PolicyError: If the configuration is missing or damaged.
    """
    positions = _setting(_text_config(read_config(Path(folder))), _POSITIONS)
    return positions if _is_count(positions) else None


def vocabulary_size(folder: str | Path) -> int | None:
    """Return the number of tokens that a model's embedding has; None without a configuration that says so."""
    path = Path(folder)
    size = _text_config(read_config(path)).get("vocab_size") if (path / CONFIG).is_file() else None
    return size if _is_count(size) else None


def describe_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Return the tensors that the headers of a folder's weights describe, by name.

    Raises:
        PolicyError: If a file has no readable header, or not the bytes that it describes.
    """
    tensors: dict[str, StoredTensor] = {}
    for file in weight_files(folder):
        try:
            tensors |= _header(file)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise PolicyError(
                f"the weights '{file}' cannot be read: {named_line(error)}; write or fetch them again"
            ) from error
    return tensors


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Raise a PolicyError that begins with `what` for whatever a library raises on files that it cannot read."""
    try:
        yield
    except PolicyError:
        raise
    except Exception as error:  # transformers and tokenizers raise anything, bare `Exception` and MemoryError included
        raise PolicyError(f"{what}: {named_line(error)}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # a panic of Rust code derives from BaseException
            raise
        raise PolicyError(f"{what}: {named_line(error)}") from error


def _check_requests(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse what a configuration may ask for beyond sizes: kernels, other weights, quantisation, numbers like NaN."""
    file = folder / CONFIG
    for name, value in _flat(config):
        asks_hub = name.endswith("_implementation") and isinstance(value, str) and "/" in value
        if asks_hub or (name.endswith("attn_implementation") and value not in _ATTENTION):
            raise PolicyError(
                f"'{file}': {name} = {value!r} asks for code that transformers may fetch from the hub; remove it "
                "(of attention 'eager' and 'sdpa' are allowed)"
            )
        if isinstance(value, float) and math.isnan(value):
            raise PolicyError(f"'{file}': {name} is NaN; correct it, or fetch the model again")
        if name == "transformers_weights" and value is not None:
            raise PolicyError(
                f"'{file}': transformers_weights = {value!r} names other weights than every other reader takes; remove "
                "it, and save the weights as model.safetensors"
            )
    quantisation = config.get("quantization_config")
    if quantisation is not None:
        method = quantisation.get("quant_method", "unknown") if isinstance(quantisation, Mapping) else quantisation
        raise PolicyError(
            f"'{folder}' holds quantised weights ({method}), which cannot be trained. Take the model's original "
            "weights, or save them dequantised: model.dequantize(), then model.save_pretrained(folder)"
        )


def _check_sizes(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> None:
    file, text = folder / CONFIG, _text_config(config)
    for name in (*_NUM_LAYERS, *_WIDTHS, *_SIZES, *_POSITIONS):
        value = text.get(name)
        if name in text and value is not None and not (_is_count(value) and value > 0):
            raise PolicyError(f"'{file}': {name} = {value!r} is not a whole number above 0; correct it")
        if name in (*_NUM_LAYERS, *_WIDTHS, "vocab_size", "num_attention_heads") and name in text and value is None:
            raise PolicyError(f"'{file}': {name} is null; expected a whole number above 0")
    num_elements = sum(math.prod(tensor.shape) for tensor in tensors.values())
    layers, width = _setting(text, _NUM_LAYERS) or 1, _setting(text, _WIDTHS) or 1
    heads = (_setting(text, ("num_attention_heads", "n_head")) or 1) * (text.get("head_dim") or 1)
    widest = max(text.get("vocab_size") or 1, text.get("intermediate_size") or 1, heads)
    if layers > len(tensors) or width * widest > num_elements:
        raise PolicyError(
            f"'{file}' asks for {layers:,} layers of width {width:,} and a vocabulary of "
            f"{text.get('vocab_size') or 0:,}, far more than the weights hold ({len(tensors):,} tensors, "
            f"{num_elements:,} numbers); config and weights do not belong together. Fetch the model again"
        )
    positions = _setting(text, _POSITIONS) or 1
    if positions > _MAX_POSITIONS:
        raise PolicyError(f"'{file}': {positions:,} positions; at most {_MAX_POSITIONS:,} can be held. Correct it")
    pad, vocabulary = text.get("pad_token_id"), text.get("vocab_size")
    if pad is not None and vocabulary and not (isinstance(pad, int) and -1 <= pad < vocabulary):
        raise PolicyError(f"'{file}': pad_token_id = {pad!r} is not in the vocabulary of {vocabulary:,}; correct it")


def _check_output_layer(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> None:
    if not config.get("tie_word_embeddings", _text_config(config).get("tie_word_embeddings")):
        return
    heads, embeddings = _ending_in(tensors, _HEADS), _ending_in(tensors, _EMBEDDINGS)
    if len(heads) != 1 or len(embeddings) != 1:
        return  # nothing to compare; `load_policy` looks at the model itself
    head, embedding = tensors[heads[0]], tensors[embeddings[0]]
    is_alike = (head.dtype, head.shape) == (embedding.dtype, embedding.shape)
    if not is_alike or not np.array_equal(_bytes_of(head), _bytes_of(embedding)):
        raise output_layer_error(folder, heads[0])


def output_layer_error(folder: str | Path, name: str = "an output layer") -> PolicyError:
    """Return the error for a folder whose weights are untied although its configuration ties them."""
    return PolicyError(
        f"'{folder}': config.json ties the output layer to the embeddings (tie_word_embeddings), but the weights hold "
        f"{name} with other values, so some readers would use one and some the other. If the model has an output layer "
        "of its own, set tie_word_embeddings to false; if not, remove it from the weights"
    )


def _header(file: Path) -> dict[str, StoredTensor]:
    num_bytes = file.stat().st_size
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if length > min(num_bytes, _MAX_HEADER_BYTES):
            raise ValueError("it has no header of safetensors")
        header = json.loads(opened.read(length))
    begin = 8 + length
    tensors = {
        name: StoredTensor(
            file,
            entry["dtype"],
            tuple(int(size) for size in entry["shape"]),
            begin + int(entry["data_offsets"][0]),
            begin + int(entry["data_offsets"][1]),
        )
        for name, entry in header.items()
        if name != "__metadata__"
    }
    expected = max((tensor.end for tensor in tensors.values()), default=begin)
    if num_bytes != expected:
        raise ValueError(f"it has {num_bytes:,} bytes, and its header describes {expected:,}")
    return tensors


def _bytes_of(tensor: StoredTensor) -> np.ndarray:
    return np.memmap(tensor.file, np.uint8, "r", tensor.start, (tensor.end - tensor.start,))


def _ending_in(tensors: Mapping[str, StoredTensor], ends: tuple[str, ...]) -> list[str]:
    return [name for name in tensors if any(name == end or name.endswith(f".{end}") for end in ends)]


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a configuration that describes the language model."""
    text = config.get("text_config")
    return text if isinstance(text, dict) else config


def _setting(config: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), None)


def _flat(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a configuration and of the tables inside it, by their last name."""
    waiting = [config]
    while waiting:
        for name, value in waiting.pop().items():
            yield name, value
            waiting += [value] if isinstance(value, dict) else []


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
