"""Secrets are masked wherever they occur, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.core.errors import StoreError
from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.store.remote.redaction import check_address, check_endpoint

SECRETS = st.text("abcXYZ019+/=", min_size=6, max_size=40)


@given(secret=SECRETS, before=st.text(max_size=20), after=st.text(max_size=20))
def test_values_of_secret_variables(secret: str, before: str, after: str) -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_SECRET_ACCESS_KEY", secret)
        assert secret not in without_secrets(f"{before} {secret} {after}")


@given(secret=SECRETS)
def test_in_an_address(secret: str) -> None:
    assert without_secrets(f"at s3://someone:{secret}@bucket/x: failed") == "at s3://***@bucket/x: failed"


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/prefix",
        "/home/user/store",
        "memory://a/b",
        'Could not connect to the endpoint URL: "http://127.0.0.1:9000/bucket/key"',
        "http://host:9000/mail@example",
        "write to someone@example.org",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text
    assert "://" not in text or " " in text or check_address(text) == text


def test_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    check_endpoint()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://s3.example.org:9000")
    check_endpoint()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    with pytest.raises(StoreError, match="AWS_ENDPOINT_URL is 'localhost:9000', expected an address such as"):
        check_endpoint()


@pytest.mark.parametrize(
    "name",
    [
        "GH_PAT", "PGPASS", "WANDB_KEY", "SLACK_WEBHOOK", "HF_TOKEN", "DB_PASSWORD", "DB_PASSWD", "MY_SECRET_THING",
        "SSH_PASSPHRASE", "SENTRY_DSN", "REGISTRY_AUTH", "AWS_CREDENTIALS", "DEPLOY_PRIVATE", "APIKEY", "wandb_key",
        "ROOT_PWD", "KEY", "PREFECT_API_AUTH_STRING", "PREFECT_SERVER_API_AUTH_STRING", "SESSION_COOKIE", "MY_JWT",
        "AZURE_STORAGE_CONNECTION_STRING", "SQL_CONN_STR", "BEARER", "API_KEYS",
        "HTTP_AUTHORIZATION", "BASIC_AUTH", "PREFECT_CLIENT_CUSTOM_HEADERS", "DB_PW", "WALLET_MNEMONIC",
    ],
)  # fmt: skip
def test_names_of_secret_variables(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "canary-Abc123")
    assert without_secrets("it says canary-Abc123!") == "it says ***!"


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "PWD",
        "HOME",
        "MONKEY_ISLAND",
        "COMPASS_ROSE",
        "PATTERN",
        "AUTHOR",
        "KEYBOARD",
        "GIT_AUTHOR_NAME",
        "SSH_AUTH_SOCK",
        "DESKTOP_SESSION",
        "TOKENIZERS_PARALLELISM",
        "RAY_AUTH_MODE",
        "CONNECTION_TIMEOUT",
    ],
)
def test_other_variables_are_no_secrets(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "canary-Abc123")
    assert without_secrets("it says canary-Abc123!") == "it says canary-Abc123!"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:hunter2x@db:5432/x", "redis://:hunter2x@cache", "https://hunter2x@example.org/x.git",
        "mysql+pymysql://me:hunter2x@db/x?charset=utf8", "amqp://me:hunter2x@host",
    ],
)  # fmt: skip
def test_passwords_in_addresses(text: str) -> None:
    assert "hunter2x" not in without_secrets(f"OperationalError: cannot connect to {text} (timeout)")


@pytest.mark.parametrize(
    ("name", "value", "text", "shown"),
    [
        (
            "PREFECT_API_AUTH_STRING",
            "admin:hunter2x",
            "wrong password 'hunter2x' of admin",
            "wrong password '***' of admin",
        ),
        ("DATABASE_URL", "postgresql://me:hunter%212x@db/x", "no login with hunter!2x", "no login with ***"),
        ("SIGNING_KEY", "-----BEGIN-----\nhunter2xhunter2x\n", "at line 2: hunter2xhunter2x", "at line 2: ***"),
        ("HF_TOKEN", "hunter2x\n", "Illegal header value b'Bearer hunter2x'", "Illegal header value b'Bearer ***'"),
        ("MAX_TOKENS", "100000", "a context of 100000 tokens", "a context of 100000 tokens"),
        ("OPENAI_API_KEY", "EMPTY", "the reply is EMPTY", "the reply is EMPTY"),
        ("PREFECT_API_URL", "http://localhost:65535", "port 65535 is taken", "port 65535 is taken"),
    ],
)
def test_secret_parts_are_masked(monkeypatch: pytest.MonkeyPatch, name: str, value: str, text: str, shown: str) -> None:
    monkeypatch.setenv(name, value)
    assert without_secrets(text) == shown
