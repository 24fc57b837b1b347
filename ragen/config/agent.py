"""How observations become prompts, and responses become actions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from starpo.ragen.core.lookup import registered
from starpo.ragen.core.registry import PROMPTS
from starpo.ragen.core.settings import Settings

FORMS: Mapping[str, tuple[str, ...]] = {
    "free": (),
    "grounding": ("observation", "reasoning"),
    "worldmodeling": ("reasoning", "prediction"),
    "grounding_worldmodeling": ("observation", "reasoning", "prediction"),
}
"""Form of the reasoning -> the tags inside `<think>`, in order."""


def _read_text(value: Any) -> Any:
    """The text of a file that is named; anything else as it is."""
    if not isinstance(value, str) or not value.endswith((".jinja", ".txt")) or "\n" in value:
        return value
    try:
        text = Path(value).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"the file {value} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"the file {value} cannot be read: it is not UTF-8") from error
    if not text.strip():
        raise ValueError(f"the file {value} is empty")
    return text


class AgentConfig(Settings):
    """The agent's side of an episode (RAGEN, environments). The same in sampling, training and evaluation."""

    max_turns: int = Field(5, ge=1, le=1000)
    """Turns a trajectory."""
    max_actions: int = Field(10, ge=1, le=10000)
    """Actions a trajectory, over all its turns."""
    max_actions_per_turn: int = Field(5, ge=1, le=1000)
    """Actions a turn; further ones in the same answer are not executed."""
    should_malformed_use_actions: bool = True
    """Does a malformed response of which nothing can be executed use up as many actions as a turn may have? False: it
    uses up its turn alone, as in the paper, and forfeits nothing that the reward's component 'forfeit' could price."""
    prompt: Annotated[str, *registered(PROMPTS)] = "full"
    """'full': rules, symbols, actions, actions left, format, response length, as in the paper. 'state': the observation
    alone, for a policy whose warm start has taught it everything else. 'template': by `prompt_template`."""
    prompt_template: Annotated[str, BeforeValidator(_read_text)] = Field("", exclude_if=lambda text: not text)
    """With prompt = 'template': what the agent is told, as a Jinja template with the blocks `introduction` and `turn`
    (docs/prompts.md), or a file that ends in `.jinja`, whose text becomes the setting."""
    system_prompt: Annotated[str, BeforeValidator(_read_text)] = Field(
        "", exclude_if=lambda text: not text, max_length=20_000
    )
    """A system message before the first user message, for chat templates that have that role, or a file that ends in
    `.txt`, whose text becomes the setting. Empty: none is sent."""
    should_think: bool = True
    """True: `<think>...</think><answer>...</answer>`. False: `<answer>...</answer>` alone."""
    form: Literal["free", "grounding", "worldmodeling", "grounding_worldmodeling"] = Field(
        "free", exclude_if=lambda form: form == "free"
    )
    """What has to stand inside `<think>` (VAGEN); a response with other reasoning is malformed. 'free': anything.
    'grounding': `<observation>...</observation><reasoning>...</reasoning>`. 'worldmodeling': `<reasoning>...
    </reasoning><prediction>...</prediction>`. 'grounding_worldmodeling': all three. The
    prompt tells it, except 'state', whose policy has learned it from demonstrations."""
    context: Literal["full", "window"] = "full"
    """'full': a turn sees all turns before it. 'window': only the last `window_turns`, its own included."""
    window_turns: int = Field(1, ge=1, le=1000)
    """Turns in sight when context = 'window'. 1: only the present observation."""
    earlier_thoughts: Literal["kept", "dropped"] = Field("kept", exclude_if=lambda thoughts: thoughts == "kept")
    """Does a turn see what the agent thought in the turns before it? 'dropped': only what stands after `</think>`, as
    the chat templates of Qwen3 and R1's distillations have it; then the context begins anew in every turn."""
    chat_template: Annotated[str, BeforeValidator(_read_text)] = Field("", exclude_if=lambda text: not text)
    """In place of the model's own chat template: the name of another that the model has (such as `tool_use`), a file
    that ends in `.jinja`, or the template itself. A file's text becomes the setting. Empty: the model's own."""
    should_show_reward: bool = True
    """Does the next prompt begin with the reward of the turn before? Never in the first prompt of a window, and never
    with prompt = 'state'."""
    should_prefill_think: bool = False
    """Does the prompt end with an already opened `<think>` (or `<answer>`)? The tag is then prompt, not response."""

    @property
    def begins_anew(self) -> bool:
        """Does the context begin anew in every turn? Otherwise it grows."""
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
    def _form_is_one_of_reasoning(self) -> "AgentConfig":
        if self.form != "free" and not self.should_think:
            raise ValueError(f"form = '{self.form}' is one of reasoning: set should_think = true, or form = 'free'")
        return self

    @model_validator(mode="after")
    def _window_only_in_window(self) -> "AgentConfig":
        if self.context == "full" and self.window_turns != 1:
            raise ValueError(
                "window_turns has no effect while context = 'full'; set context = 'window' or leave it out"
            )
        return self
