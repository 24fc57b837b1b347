"""How observations become prompts, and responses become actions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.core.lookup import registered
from starpo.ragen.core.registry import PROMPTS, SCENES
from starpo.ragen.core.settings import Settings

FORMS: Mapping[str, tuple[str, ...]] = {
    "free": (),
    "grounding": ("observation", "reasoning"),
    "worldmodeling": ("reasoning", "prediction"),
    "grounding_worldmodeling": ("observation", "reasoning", "prediction"),
}
"""Form of the reasoning -> tags inside `<think>`, in order."""


def _read_text(value: Any) -> Any:
    """Return the text of the named file; return any other value unchanged."""
    if not isinstance(value, str) or not value.endswith((".jinja", ".txt")) or "\n" in value:
        return value
    try:
        text = Path(value).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"the file {value} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"the file {value} cannot be read: it is not UTF-8") from error
    if not text.strip():
        raise ValueError(f"the file {value} is empty")
    return text


CHAT_TEMPLATES: Mapping[str, Path] = {
    path.stem: path for path in sorted((Path(__file__).parent / "chat_templates").glob("*.jinja"))
}
"""Name of a chat template that takes tools -> its file."""


def _read_chat_template(value: Any) -> Any:
    """Return the text of the named built-in template or file; return any other value unchanged."""
    return _read_text(str(CHAT_TEMPLATES[value]) if isinstance(value, str) and value in CHAT_TEMPLATES else value)


class AgentConfig(Settings):
    """The agent's side of an episode (RAGEN, environments). Identical in sampling, training and evaluation."""

    max_turns: int = Field(5, ge=1, le=1000)
    """Maximum number of turns per trajectory."""
    max_actions: int = Field(10, ge=1, le=10000)
    """Maximum number of actions per trajectory, over all its turns."""
    max_actions_per_turn: int = Field(5, ge=1, le=1000)
    """Maximum number of actions per turn; further actions in the same answer are not executed."""
    observation: Literal["text", "image", "both"] = "text"
    """What the prompt shows of a state. 'text': the environment's text. 'image': its picture (`render_rgb`). 'both':
    the picture, followed by the text. The column `observation` of `turns` always holds the text. With 'image' and
    'both' alike, a program may show images of its own."""
    should_malformed_use_actions: bool = True
    """Whether a malformed response from which nothing can be executed uses up as many actions as a turn may have.
    False: it only uses up its turn, as in the paper, and forfeits no actions that the reward component 'forfeit' could
    price."""
    prompt: Annotated[str, *registered(PROMPTS)] = "full"
    """'full': rules, symbols, actions, actions left, format and response length, as in the paper. 'state': the
    observation alone, for a policy whose warm start has taught it everything else. 'template': the Jinja template
    `prompt_template`."""
    prompt_template: Annotated[str, BeforeValidator(_read_text)] = ""
    """With prompt = 'template': the prompt as a Jinja template with the blocks `introduction` and `turn`
    (docs/prompts.md), or the path of a `.jinja` file, whose text becomes the setting."""
    system_prompt: Annotated[str, BeforeValidator(_read_text)] = Field("", max_length=20_000)
    """System message before the first user message, for chat templates that support that role, or the path of a `.txt`
    file, whose text becomes the setting. Empty: none is sent; a template may then insert one of its own."""
    template_system_prompt: Literal["kept", "empty"] = "kept"
    """Whether a system prompt that the chat template inserts of its own (as those of Qwen2.5 and SmolLM2 do) stays.
    'empty': an empty system message is sent in its place; without effect on templates that insert none."""
    should_think: bool = True
    """True: `<think>...</think><answer>...</answer>`. False: `<answer>...</answer>` alone."""
    form: Literal["free", "grounding", "worldmodeling", "grounding_worldmodeling"] = "free"
    """Required structure inside `<think>` (VAGEN); a response with any other reasoning is malformed. 'free': anything.
    'grounding': `<observation>...</observation><reasoning>...</reasoning>`. 'worldmodeling':
    `<reasoning>...</reasoning><prediction>...</prediction>`. 'grounding_worldmodeling': all three. The prompt explains
    it, except with prompt = 'state', where the policy has learned it from demonstrations."""
    context: Literal["full", "window"] = "full"
    """'full': a turn sees all turns before it. 'window': only the last `window_turns` turns, including the current
    one."""
    window_turns: int = Field(1, ge=1, le=1000)
    """Number of visible turns with context = 'window'. 1: only the current observation."""
    earlier_thoughts: Literal["kept", "dropped"] = "kept"
    """Whether a turn sees the agent's reasoning in earlier turns. 'dropped': only the text after `</think>`, as in the
    chat templates of Qwen3 and R1's distillations; the context then restarts in every turn. Where such a template keeps
    reasoning while results of tools follow (Qwen3's does), so do loops of tool calls."""
    chat_template: Annotated[str, BeforeValidator(_read_chat_template)] = ""
    """Replacement for the model's own chat template: `hermes`, `qwen3`, `llama3` or `xml`, which take tools
    (docs/prompts.md), the name of another template that the model brings, the path of a `.jinja` file, or the template
    itself. The text becomes the setting. Empty: the model's own."""
    should_show_reward: bool = True
    """Whether the next prompt begins with the reward of the previous turn. Never in the first prompt of a window, nor
    with prompt = 'state'."""
    should_prefill_think: bool = False
    """Whether the prompt ends with an opened `<think>` (or `<answer>`) tag. The tag is then part of the prompt, not of
    the response."""

    @property
    def shows_images(self) -> bool:
        """Whether prompts contain images."""
        return self.observation != "text"

    @property
    def begins_anew(self) -> bool:
        """Whether the context restarts in every turn; otherwise it grows."""
        return self.context == "window" or self.earlier_thoughts == "dropped"

    @model_validator(mode="after")
    def _template_is_used(self) -> "AgentConfig":
        if (self.prompt == "template") != bool(self.prompt_template):
            raise ValueError(
                "prompt = 'template' and prompt_template go together: "
                + ("name a file in prompt_template" if self.prompt == "template" else "set prompt = 'template'")
            )
        return self

    @model_validator(mode="after")
    def _one_system_prompt(self) -> "AgentConfig":
        if self.system_prompt and self.template_system_prompt == "empty":
            raise ValueError(
                "system_prompt already replaces the template's own: leave template_system_prompt out, or leave "
                "system_prompt empty"
            )
        return self

    @model_validator(mode="after")
    def _form_is_one_of_reasoning(self) -> "AgentConfig":
        if self.form != "free" and not self.should_think:
            raise ValueError(f"form = '{self.form}' is a form of reasoning: set should_think = true, or form = 'free'")
        return self

    @model_validator(mode="after")
    def _window_only_in_window(self) -> "AgentConfig":
        if self.context == "full" and self.window_turns != 1:
            raise ValueError(
                "window_turns has no effect while context = 'full'; set context = 'window' or leave it out"
            )
        return self

    def check_fits(self, types: Mapping[str, str], rollout: RolloutConfig, *, is_demonstrated: bool) -> None:
        """Check that the policy can know and show what is asked of it.

        Args:
            types: Tag -> type of each part of a mixture; for a single environment, its type -> its type.
            rollout: The rollout's settings.
            is_demonstrated: Whether the policy imitates demonstrations first.

        Raises:
            ValueError: If it cannot; the message says what to set.
        """
        if self.form != "free" and not is_demonstrated and self.prompt == "state":
            raise ValueError(
                f"prompt = 'state' shows only the observation, so the policy would not know of form = "
                f"'{self.form}': set agent.prompt = 'full', let the policy learn it from demonstrations "
                "(policy.fine_tuning), or set agent.form = 'free'"
            )
        blind = next((tag for tag, kind in types.items() if kind not in SCENES), None)
        if self.form != "free" and is_demonstrated and blind is not None:
            raise ValueError(
                f"agent.form = '{self.form}' needs demonstrations that state the positions of objects, which "
                f"environment '{blind}' does not provide; environments that do: {', '.join(SCENES)}. Set agent.form = "
                "'free', or policy.type = 'pretrained' without policy.fine_tuning"
            )
        if self.shows_images and not rollout.engine_config.accepts_images:
            raise ValueError(
                f"agent.observation = '{self.observation}' shows images, which rollout.engine = '{rollout.engine}' "
                "does not send: set rollout.engine = 'torch', or agent.observation = 'text'"
            )
        if self.chat_template and getattr(rollout.engine_config, "protocol", "") == "chat":
            raise ValueError(
                f"rollout.engine = '{rollout.engine}' sends messages, which the server renders by its own chat "
                "template: leave agent.chat_template out, and give the template to the server"
            )
