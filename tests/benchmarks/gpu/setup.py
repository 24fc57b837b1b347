"""What is measured on: the model, and how much of everything."""

from dataclasses import dataclass
from pathlib import Path

from starpo.ragen.agents.policy.save import save_policy
from starpo.ragen.agents.policy.tiny import make_model, make_tokenizer
from starpo.ragen.config.policy import TinyPolicy


@dataclass(frozen=True)
class Setup:
    """Sizes of all parts: those of a GPU, or those that a CPU can do.

    Attributes:
        model: Folder of the model.
        out: Folder of everything that is written.
        num_groups: Groups of the rollout, of `group_size` episodes each.
        group_size: Episodes of a group.
        max_turns: Turns of an episode.
        max_response_tokens: Tokens of a response.
        num_trajectories: Trajectories of an update, in groups of at most eight.
        updates: (dtype, micro_batch_tokens) of the updates.
        tuning_steps: Steps of fine-tuning.
        tuning_batch: Examples of a step.
        run: Overrides of `sokoban.toml`.
    """

    model: str
    out: Path
    num_groups: int = 16
    group_size: int = 16
    max_turns: int = 3
    max_response_tokens: int = 64
    num_trajectories: int = 128
    updates: tuple[tuple[str, int], ...] = (("bfloat16", 8192), ("bfloat16", 32768), ("float32", 8192))
    tuning_steps: int = 8
    tuning_batch: int = 32
    run: tuple[tuple[str, object], ...] = ()


SMALL = {
    "num_groups": 2,
    "group_size": 2,
    "max_turns": 2,
    "max_response_tokens": 8,
    "num_trajectories": 2,
    "updates": (("float32", 2048),),
    "tuning_steps": 2,
    "tuning_batch": 4,
    "run": (
        ("iterations", 2),
        ("policy.fine_tuning.steps", 2),
        ("policy.fine_tuning.batch_size", 4),
        ("policy.fine_tuning.demonstration_turns", 8),
        ("rollout.num_groups", 2),
        ("rollout.group_size", 2),
        ("update.dtype", "float32"),
        ("update.micro_batch_tokens", 1024),
        ("filter.should_drop_zero_variance", False),
        ("evaluation.num_prompts", 2),
    ),
}


def make_tiny(folder: Path) -> str:
    """Write a random model of ten thousand weights, and return its folder."""
    tokenizer = make_tokenizer()
    sizes = TinyPolicy(hidden_size=16, num_layers=2, num_heads=2, num_kv_heads=1, intermediate_size=24)
    folder.mkdir(parents=True)
    save_policy(make_model(sizes, tokenizer), tokenizer, folder)
    return str(folder)
