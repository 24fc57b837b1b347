"""The embedded policy's folder, read by AutoTokenizer in another process that imports no code of this project."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from starpo.ragen.agents.policy.save import make_portable, save_policy
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.core.registry import VOCABULARY
from starpo.ragen.envs import make
from starpo.ragen.envs.bandit.environment import BanditSettings
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.envs.sokoban.environment import SokobanSettings

TOKENIZER = make_tokenizer()
SMALL = TinyPolicy(hidden_size=32, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=32)
WORLDS = (
    SokobanSettings(observation="compact"),
    SokobanSettings(),
    FrozenLakeSettings(observation="compact"),
    FrozenLakeSettings(),
    BanditSettings(names="train"),
    BanditSettings(names="phoenix_dragon"),
)
TALK = [
    {"role": "user", "content": "P 1 2\n#____#\n"},
    {"role": "assistant", "content": "<think>X down left, quite</think><answer>Up || Left</answer>"},
    {"role": "user", "content": "Reward: -0.1\n héllo √ 12"},
]
READ = """
import json, sys
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
asked = json.load(sys.stdin)
ids = [tokenizer.encode(text, add_special_tokens=False) for text in asked["texts"]]
talk = tokenizer.apply_chat_template(asked["talk"], add_generation_prompt=True)["input_ids"]
print(json.dumps([ids, talk, [tokenizer.decode(of) for of in ids], tokenizer.eos_token_id, tokenizer.pad_token_id]))
"""


def prompts() -> list[str]:
    """First prompts of all environments whose vocabulary every policy has, as bare state and with full instructions."""
    texts = []
    for settings in WORLDS:
        for prompt in ("state", "full"):
            world = make(settings)
            observation, _ = world.reset(seed=5, dynamics_seed=6)
            context = ContextBuilder(TOKENIZER, AgentConfig(prompt=prompt), 32).start(world)
            ids = context.observe(observation, actions_left=10, reward=None, had_invalid_action=False).prompt_ids
            texts.append(TOKENIZER.decode(ids))
    return texts


@pytest.mark.ci
@pytest.mark.parametrize("is_exported", [False, True])
def test_auto_tokenizer_reads_checkpoint_as_saved(tmp_path: Path, is_exported: bool) -> None:
    assert {settings.type for settings in WORLDS} == VOCABULARY.keys()
    save_policy(make_model(SMALL, TOKENIZER), TOKENIZER, tmp_path)
    if is_exported:
        make_portable(tmp_path)
        config = json.loads((tmp_path / "tokenizer_config.json").read_text())
        assert config["tokenizer_class"] == "PreTrainedTokenizerFast"  # transformers 4 knows no TokenizersBackend
        assert config["additional_special_tokens"] == ["<|im_start|>"]  # and reads no list as extra_special_tokens
        assert "extra_special_tokens" not in config
    texts = [*prompts(), TALK[1]["content"], "any text, ünusual: Upper  \n\n 7"]
    read = subprocess.run(
        [sys.executable, "-I", "-c", READ, str(tmp_path)],
        input=json.dumps({"texts": texts, "talk": TALK}),
        capture_output=True,
        text=True,
    )
    assert read.returncode == 0, read.stderr
    ids, talk, decoded, *ends = json.loads(read.stdout)
    assert ids == [TOKENIZER.encode(text, add_special_tokens=False) for text in texts]
    assert talk == TOKENIZER.apply_chat_template(TALK, add_generation_prompt=True)["input_ids"]
    assert decoded == texts
    assert ends == [TOKENIZER.eos_token_id, TOKENIZER.pad_token_id]
