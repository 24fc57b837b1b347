"""Whether a teacher reads the tokens that the policy writes."""

import pytest

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.learning.distillation.vocabulary import check_vocabulary

POLICY = {"a": 0, "b": 1}


def test_same_vocabulary_is_accepted() -> None:
    check_vocabulary(POLICY, {"b": 1, "a": 0}, "teacher")


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        ({**POLICY, "c": 2}, "3 tokens, the policy 2, and token 2, 'c'"),
        ({"a": 0}, "1 tokens, the policy 2, and token 1, 'b'"),
        ({"a": 1, "b": 0}, "2 tokens, the policy 2, and token 0, 'a'"),
    ],
)
def test_another_vocabulary_is_refused(teacher: dict[str, int], message: str) -> None:
    with pytest.raises(
        ConfigError, match=f"^teacher.name_or_path = 'x' has another vocabulary than the policy: {message}"
    ):
        check_vocabulary(POLICY, teacher, "teacher.name_or_path = 'x'")
