"""Sizes and parameter counts of a transformer with a gated feed-forward layer (Qwen2, Qwen3, Llama, Mistral), and of
the encoder of images of one that sees.

settings --architecture_of--> Architecture --> num_parameters
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from starpo.ragen.config.explanation import near
from starpo.ragen.config.model_files import CONFIG, model_place
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.context_fit import tiny_tokenizer
from starpo.ragen.core.errors import ConfigError, PolicyError, StarPOError

_TABLE = Path(__file__).parent / "data" / "architectures.json"
_SUFFIXES = ("-Instruct",)
_BIASED = ("qwen2",)
_NORMED_HEADS = ("qwen3",)
KNOWN_TYPES = ("qwen2", "qwen3", "llama", "mistral")
"""Supported values of `model_type` in config.json."""
_SEEING = {"qwen2_5_vl": "qwen2", "qwen3_vl": "qwen3", "smolvlm": "llama"}
"""The same of models that see -> that of their decoder."""
_PLAIN_ENCODERS = ("qwen3_vl", "smolvlm")
"""Models whose encoder has feed-forward layers without a gate."""


@dataclass(frozen=True)
class Vision:
    """The part of a model that turns images into tokens.

    Attributes:
        num_parameters: All its parameters, those that project onto the decoder's width included.
        num_patches: Number of patches that it encodes for each token.
        token_side: Side length in pixels of the square of an image that becomes a token.
        num_inputs: Numbers of a patch.
        layers: Sizes of its layers; None if it has none.
        has_layer_norms: Whether its norms are LayerNorm, which keeps its input alone; RMSNorm keeps a product as well.
        is_fused: Whether queries, keys and values are one array, and attention is computed a window or image at a time.
        num_projections: Arrays of a patch's width that are kept where patches become tokens.
    """

    num_parameters: int
    num_patches: int
    token_side: int
    num_inputs: int
    layers: "Architecture | None" = None
    has_layer_norms: bool = False
    is_fused: bool = False
    num_projections: int = 0


@dataclass(frozen=True)
class Architecture:
    """Sizes that determine the parameters, caches and operations of a model.

    Attributes:
        hidden_size: h, width of the residual stream.
        num_layers: L, number of layers.
        num_heads: Number of query heads.
        num_kv_heads: Number of key-value heads.
        head_dim: Width of a head; q = num_heads * head_dim, kv = num_kv_heads * head_dim.
        intermediate_size: i, width of the feed-forward layers.
        vocab_size: V, size of the vocabulary.
        is_tied: Whether the embeddings are also the output layer.
        has_qkv_bias: Whether the query, key and value projections have a bias.
        has_head_norms: Whether queries and keys are normalised per head.
        vision: What it sees with; None if it sees no images.
    """

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    is_tied: bool
    has_qkv_bias: bool = True
    has_head_norms: bool = False
    vision: Vision | None = None

    @property
    def query_size(self) -> int:
        """q: total width of the query heads."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """kv: total width of the key heads, which is also that of the value heads."""
        return self.num_kv_heads * self.head_dim

    @property
    def linear_maps(self) -> dict[str, tuple[int, int]]:
        """Name -> (inputs, outputs) of the linear projections of a layer."""
        h, q, kv, i = self.hidden_size, self.query_size, self.kv_size, self.intermediate_size
        return {
            "q_proj": (h, q), "k_proj": (h, kv), "v_proj": (h, kv), "o_proj": (q, h),
            "gate_proj": (h, i), "up_proj": (h, i), "down_proj": (i, h),
        }  # fmt: skip

    @property
    def num_matrix_parameters(self) -> int:
        """Weights of the linear projections of all layers: L (2 h q + 2 h kv + 3 h i)."""
        return self.num_layers * sum(inputs * outputs for inputs, outputs in self.linear_maps.values())

    @property
    def num_backbone_parameters(self) -> int:
        """All parameters except a separate output layer: matrices, biases, norms, embeddings V h, and what it sees
        with."""
        biases = self.query_size + 2 * self.kv_size if self.has_qkv_bias else 0
        norms = 2 * self.hidden_size + (2 * self.head_dim if self.has_head_norms else 0)
        rest = self.num_layers * (biases + norms) + self.hidden_size
        seeing = 0 if self.vision is None else self.vision.num_parameters
        return self.num_matrix_parameters + rest + self.vocab_size * self.hidden_size + seeing

    @property
    def num_parameters(self) -> int:
        """Parameters of the policy: the backbone and, unless tied, an output layer of V h."""
        return self.num_backbone_parameters + (0 if self.is_tied else self.vocab_size * self.hidden_size)

    @property
    def num_critic_parameters(self) -> int:
        """Parameters of the critic: the backbone and a linear head from h to 1 with a bias."""
        return self.num_backbone_parameters + self.hidden_size + 1

    def adapted(self, targets: list[str] | None = None) -> list[tuple[int, int]]:
        """Return (inputs, outputs) of the projections of a layer that get a LoRA adapter.

        Args:
            targets: Names of the projections; None for all.

        Raises:
            ConfigError: If a layer has no projection of this name.
        """
        maps = self.linear_maps
        unknown = [name for name in targets or () if name not in maps]
        if unknown:
            raise ConfigError(
                f"update.lora.targets: the policy has no linear layers named '{unknown[0]}'{near(unknown[0], maps)}; "
                f"it has {', '.join(sorted(maps))}"
            )
        return [maps[name] for name in dict.fromkeys(targets or maps)]

    def num_adapter_parameters(self, rank: int, targets: list[str] | None = None) -> int:
        """Count LoRA parameters: L * sum over adapted projections of rank * (inputs + outputs) (2106.09685, sec. 4.1).

        Args:
            rank: Rank of every adapter.
            targets: As for `adapted`.
        """
        return self.num_layers * sum(rank * (inputs + outputs) for inputs, outputs in self.adapted(targets))


def architecture_of(config: StarPOConfig) -> Architecture:
    """Return the architecture of a run's policy from the settings, without reading weights.

    Args:
        config: Settings of the run. The policy is the embedded one, whose vocabulary depends on the environment and the
            form of the reasoning, a local model (a GGUF file is converted first), or the name of a model in the shipped
            table.

    Raises:
        PolicyError: If it is none of these, or of an unsupported type.
        MissingPackageError: If it is a GGUF file, and the packages that read it are not installed.
        ConfigError: If the embedded policy has nobody to imitate in the environment.
    """
    policy = config.policy
    if isinstance(policy, TinyPolicy):
        return Architecture(
            hidden_size=policy.hidden_size,
            num_layers=policy.num_layers,
            num_heads=policy.num_heads,
            num_kv_heads=policy.num_kv_heads,
            head_dim=policy.hidden_size // policy.num_heads,
            intermediate_size=policy.intermediate_size,
            vocab_size=len(tiny_tokenizer(config)),
            is_tied=True,
            vision=_patch_embedding(policy),
        )
    place = model_place(policy.name_or_path)
    if place is not None:
        from starpo.ragen.agents.policy.source import local_folder

        file = local_folder(place) / CONFIG
        if file.is_file():
            return _of_config(file)
    known = known_architectures()
    name = policy.name_or_path
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    if name in known:
        return known[name]
    raise PolicyError(
        f"policy.name_or_path = '{policy.name_or_path}': neither a folder with a config.json nor a model whose sizes "
        f"are known here, so it cannot be estimated; known: {', '.join(known)} (and -Instruct). Give a folder with "
        "its config.json, which has the sizes (the weights are not read): --set policy.name_or_path=FOLDER"
    )


def known_architecture(config: StarPOConfig) -> Architecture | None:
    """Return the architecture of a run's policy; None if it is not known here."""
    try:
        return architecture_of(config)
    except StarPOError:
        return None


def known_size(config: StarPOConfig) -> int | None:
    """Return the number of parameters of a run's policy; None if its sizes are not known here."""
    architecture = known_architecture(config)
    return None if architecture is None else architecture.num_parameters


@cache
def known_architectures() -> dict[str, Architecture]:
    """Return name -> architecture of the known models: Qwen2.5 and one that sees, from the published configurations."""
    table: dict[str, dict[str, Any]] = json.loads(_TABLE.read_text())
    seeing = {name: sizes | {"vision": _read_vision(sizes.get("vision"))} for name, sizes in table.items()}
    return {name: Architecture(**sizes) for name, sizes in seeing.items()}


def _read_vision(sizes: dict[str, Any] | None) -> Vision | None:
    return None if sizes is None else Vision(**sizes | {"layers": Architecture(**sizes["layers"])})


def _patch_embedding(policy: TinyPolicy) -> Vision | None:
    """Count the embedded policy's `PatchEmbedding`: 8 x 8 cells of three colours, 32 rows and 32 columns."""
    if policy.patch_size is None:
        return None
    return Vision((3 * 8 * 8 + 1 + 2 * 32) * policy.hidden_size, 1, policy.patch_size, 3 * 8 * 8)


def _vision_of(folder: Path, kind: str, config: dict[str, Any]) -> Vision:
    """Count a model's encoder of images by making the model without its weights."""
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(folder, local_files_only=True))
    number = sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if not any(part in name for part in ("language_model", "text_model", "lm_head"))
    )
    vision = config["vision_config"]
    heads = vision.get("num_heads") or vision["num_attention_heads"]
    merged = vision.get("spatial_merge_size") or config["scale_factor"]
    intermediate = vision["intermediate_size"] // (2 if kind in _PLAIN_ENCODERS else 1)
    layers = Architecture(
        vision["hidden_size"], vision.get("depth") or vision["num_hidden_layers"], heads, heads,
        vision["hidden_size"] // heads, intermediate, 0, is_tied=True,
    )  # fmt: skip
    is_fused = kind != "smolvlm"
    num_inputs = 3 * vision.get("temporal_patch_size", 2 if is_fused else 1) * vision["patch_size"] ** 2
    num_mergers = 1 + len(vision.get("deepstack_visual_indexes", ()))
    return Vision(
        number, merged**2, vision["patch_size"] * merged, num_inputs, layers,
        has_layer_norms=kind in _PLAIN_ENCODERS, is_fused=is_fused, num_projections=3 * num_mergers if is_fused else 1,
    )  # fmt: skip


def _of_config(file: Path) -> Architecture:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        kind, vision = config["model_type"], None
        if kind in _SEEING:
            vision = _vision_of(file.parent, kind, config)
            is_tied = config.get("tie_word_embeddings", False)
            config = {"tie_word_embeddings": is_tied, **config, **config.get("text_config", {})}
            kind = _SEEING[kind]
        if kind not in KNOWN_TYPES:
            raise PolicyError(
                f"'{file}': the parameters of models of type '{kind}' are not counted here; "
                f"known types: {', '.join((*KNOWN_TYPES, *_SEEING))}"
            )
        num_heads = config["num_attention_heads"]
        return Architecture(
            hidden_size=config["hidden_size"],
            num_layers=config["num_hidden_layers"],
            num_heads=num_heads,
            num_kv_heads=config.get("num_key_value_heads") or num_heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // num_heads,
            intermediate_size=config["intermediate_size"],
            vocab_size=config["vocab_size"],
            is_tied=config.get("tie_word_embeddings", False),
            has_qkv_bias=kind in _BIASED or bool(config.get("attention_bias", False)),
            has_head_norms=kind in _NORMED_HEADS,
            vision=vision,
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, PolicyError):
            raise
        raise PolicyError(
            f"'{file}' cannot be read as a model's configuration: {type(error).__name__}: {error}"
        ) from error
