"""Whether a teacher reads the tokens that the policy writes: both need one vocabulary, token by token."""

from collections.abc import Mapping

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.visible import quoted


def check_vocabulary(policy: Mapping[str, int], teacher: Mapping[str, int], name: str) -> None:
    """Check that a teacher has the vocabulary of the policy.

    Args:
        policy: Token -> id, of the policy's tokenizer.
        teacher: The same of the teacher's.
        name: What messages call the teacher.

    Raises:
        ConfigError: If it has another one.
    """
    if policy == teacher:
        return
    differing = sorted((number, token) for token, number in policy.items() if teacher.get(token) != number) or sorted(
        (number, token) for token, number in teacher.items() if token not in policy
    )
    number, token = differing[0]
    raise ConfigError(
        f"{name} has another vocabulary than the policy: {len(teacher):,} tokens, the policy {len(policy):,}, and "
        f"token {number}, {quoted(token)}, is not the same. A teacher scores the policy's tokens, so it needs the "
        "policy's tokenizer: take a model of the same family"
    )
