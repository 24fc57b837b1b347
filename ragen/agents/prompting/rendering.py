"""Rendering of chat templates, which are programs that come with a model: in a process with limits of its own.

    template, conversations -> a child process (`rendering_child.py`) -> texts

The child gets no environment variables but the search path of modules, at most 1 GiB of memory and 5 s of CPU time.
It renders as `tokenizer.apply_chat_template` does.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from starpo.ragen.core.errors import TemplateError

_CHILD = Path(__file__).with_name("rendering_child.py")
_LIMITS = {"bytes": 1 << 30, "cpu_s": 5, "characters": 1_000_000}
_PATIENCE_S = 120.0  # of wall time: the machine may be busy with other work

Message = Mapping[str, str]


def render(
    template: str, conversations: Sequence[Sequence[Message]], variables: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Render conversations with a chat template.

    Args:
        template: Jinja source.
        conversations: Messages with `role` and `content`. [num_conversations]
        variables: Other variables of the template, such as `bos_token` and `tools`.

    Returns:
        (text, "") of each conversation, or ("", error) where the template fails. [num_conversations]

    Raises:
        TemplateError: If the template exceeds the limits.
    """
    request = {"template": template, "conversations": conversations, "variables": variables, "limits": _LIMITS}
    return list(_rendered(json.dumps(request)))


@lru_cache(maxsize=64)
def _rendered(request: str) -> tuple[tuple[str, str], ...]:
    command = [sys.executable, "-P", str(_CHILD)]
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, input=request, env=environment, capture_output=True, encoding="utf-8", timeout=_PATIENCE_S
        )
        answers = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):  # killed by a limit: no answer, or half of one
        raise TemplateError(
            f"the chat template exceeds what a template may use: {_LIMITS['cpu_s']} s of CPU time, "
            f"{_LIMITS['bytes'] >> 30} GiB of memory. Set agent.chat_template to another one"
        ) from None
    return tuple((text, error) for text, error in answers)
