"""Which chat template is used: the tokenizer's own, another one that the model brings, or that of the settings.

tokenizer, `agent.chat_template` -> Jinja source
"""

import re
from typing import Any

from transformers import PreTrainedTokenizerBase

from starpo.ragen.config.agent import CHAT_TEMPLATES, AgentConfig
from starpo.ragen.core.errors import TemplateError

_NAME = re.compile(r"[\w.-]+")  # no template, which has braces or several words


def template_source(tokenizer: PreTrainedTokenizerBase, agent: AgentConfig, tools: list[dict[str, Any]] | None) -> str:
    """Return the chat template.

    Args:
        tokenizer: May have several, by name.
        agent: May replace it.
        tools: Declarations of tools, for which a model may bring a template of its own; None if there are none.

    Raises:
        TemplateError: If the settings name one that nobody has.
        ValueError: If the tokenizer has none, or several of which none is the default.
    """
    given, templates = agent.chat_template, tokenizer.chat_template
    names = list(templates) if isinstance(templates, dict) else []
    if _NAME.fullmatch(given) and given not in names:
        others = f"of this model, which has {', '.join(names)}" if names else "of this model, which names none"
        raise TemplateError(
            f"agent.chat_template = '{given}' is no chat template {others}, and none of StarPO's, which are "
            f"{', '.join(CHAT_TEMPLATES)}. Set one of these, or name a .jinja file"
        )
    return tokenizer.get_chat_template(given or None, tools)
