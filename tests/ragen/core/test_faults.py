"""Exceptions of others as texts: short, and without secrets."""

import traceback

import pytest
from pydantic import BaseModel, ValidationError

from starpo.ragen.core.errors import ConfigError, StarPOError, first_line, named_line, one_line
from starpo.ragen.core.faults import describe_fault, redacted
from starpo.ragen.core.redaction import without_secrets

SECRET = "canary-Abc123"


@pytest.fixture(autouse=True)
def _with_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GH_PAT", SECRET)


@pytest.mark.parametrize("show", [first_line, named_line, one_line, lambda error: describe_fault(error, "nowhere")])
def test_exception_texts_hold_no_secret(show) -> None:
    assert SECRET not in show(RuntimeError(f"401 for {SECRET}"))
    assert "***" in show(RuntimeError(f"401 for {SECRET}"))


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(f"401 for {SECRET}"),
        KeyError(SECRET),
        OSError(2, f"no {SECRET}"),
        FileNotFoundError(2, "no such file", f"/x/{SECRET}"),
        ConfigError(f"{SECRET} is wrong"),
    ],
)
def test_exception_keeps_type_without_secrets(error: BaseException) -> None:
    error.__cause__ = ValueError(f"because of {SECRET}")
    error.__cause__.__context__ = error  # a circle ends
    assert redacted(error) is error
    assert SECRET not in f"{error} {error!r} {error.__cause__}"
    assert "***" in str(error)


def test_fixed_text_exception_is_replaced() -> None:
    class Settings(BaseModel):
        number: int

    with pytest.raises(ValidationError) as raised:
        Settings(number=SECRET)  # type: ignore[arg-type]
    error = redacted(raised.value)
    assert isinstance(error, StarPOError)
    assert str(error) == without_secrets(f"ValidationError: {raised.value}")
    assert SECRET not in str(error)


def test_error_group_notes_lose_secrets() -> None:
    error = ExceptionGroup("two", [RuntimeError(f"401 for {SECRET}")])
    error.add_note(f"it was {SECRET}")
    assert SECRET not in "".join(traceback.format_exception(redacted(error)))
