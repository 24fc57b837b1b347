"""Whether a teacher reads the tokens that the policy writes: both need one vocabulary, token by token."""

from collections.abc import Mapping

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.visible import quoted


def check_vocabulary(policys: Mapping[str, int], teachers: Mapping[str, int], name: str) -> None:
    """Check that a teacher has the vocabulary of the policy.

    Args:
        policys: Token -> id, of the policy's tokenizer.
        teachers: The same of the teacher's.
        name: What messages call the teacher.

    Raises:
        ConfigError: If it has another one.
    """
    if policys == teachers:
        return
    differing = sorted((number, token) for token, number in policys.items() if teachers.get(token) != number) or sorted(
        (number, token) for token, number in teachers.items() if token not in policys
    )
    number, token = differing[0]
    raise ConfigError(
        f"{name} has another vocabulary than the policy: {len(teachers):,} tokens, the policy {len(policys):,}, and "
        f"token {number}, {quoted(token)}, is not the same. A teacher scores the policy's tokens, so it needs the "
        "policy's tokenizer: take a model of the same family"
    )
