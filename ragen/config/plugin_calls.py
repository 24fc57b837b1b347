"""`plugin_call`: a call of the implementation that a name in a setting refers to, guarded, named and limited.

with plugin_call("filter", FILTERS, config.strategy): load(FILTERS, config.strategy)(...)
"""

from collections.abc import Iterator
from contextlib import contextmanager

from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.guard import guarded
from starpo.ragen.core.lookup import Registry

_BUILT_IN = "starpo."


@contextmanager
def plugin_call(kind: str, registry: Registry, name: str) -> Iterator[None]:
    """Context manager around a call of an implementation; a built-in one has no limit.

    Args:
        kind: What it is, for messages, such as 'filter'.
        registry: Where its name is looked up.
        name: Its name, or `module:attribute`.

    Raises:
        CallLimitError: If it took longer than `Runtime.plugin_s`.
    """
    is_built_in = registry[name].startswith(_BUILT_IN)
    with guarded(f"{kind} '{name}'", None if is_built_in else Runtime.current().plugin_limit):
        yield
