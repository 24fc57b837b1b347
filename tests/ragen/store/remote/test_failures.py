"""Errors are classified by the server's code or status, whatever its message, or by the operating system's error."""

import errno

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, SSLError
from s3fs.errors import translate_boto_error

from starpo.ragen.store.remote.failures import Failure, describe, failure_of, is_answer


def answer(status: int, code: str | None, message: str | None = None) -> OSError:
    """Return the error that s3fs raises for this response."""
    error = {"Code": code, "Message": message} if code else {}
    return translate_boto_error(
        ClientError({"Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}, "GetObject")  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("message", [None, "", "Some words."])
@pytest.mark.parametrize(
    ("status", "code", "failure"),
    [
        (404, "NoSuchKey", Failure.MISSING),
        (404, "NoSuchBucket", Failure.NO_BUCKET),
        (404, "404", Failure.NOT_S3),
        (404, None, Failure.NOT_S3),
        (404, "NoSuchUpload", Failure.BUSY),
        (412, "PreconditionFailed", Failure.EXISTS),
        (409, "ConditionalRequestConflict", Failure.BUSY),
        (403, "AccessDenied", Failure.DENIED),
        (403, "403", Failure.DENIED),
        (403, "InvalidAccessKeyId", Failure.CREDENTIALS),
        (403, "SignatureDoesNotMatch", Failure.CREDENTIALS),
        (403, "RequestTimeTooSkewed", Failure.CLOCK),
        (403, "QuotaExceeded", Failure.STORAGE_FULL),
        (400, "AuthorizationHeaderMalformed", Failure.REGION),
        (400, "IncompleteBody", Failure.BUSY),
        (400, "InvalidArgument", Failure.REFUSED),
        (301, "PermanentRedirect", Failure.REGION),
        (416, "InvalidRange", Failure.BEYOND_END),
        (429, "TooManyRequests", Failure.BUSY),
        (500, "InternalError", Failure.BUSY),
        (501, "NotImplemented", Failure.REFUSED),
        (503, "SlowDown", Failure.BUSY),
        (503, None, Failure.BUSY),
        (507, "XMinioStorageFull", Failure.STORAGE_FULL),
    ],
)
def test_answers(status: int, code: str | None, message: str | None, failure: Failure) -> None:
    error = answer(status, code, message)
    assert failure_of(error) is failure
    assert is_answer(error)
    assert describe(error).startswith(f"the server answered {status}")


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (EndpointConnectionError(endpoint_url="http://host"), Failure.UNREACHABLE),
        (SSLError(endpoint_url="https://host", error="wrong version number"), Failure.SECURE),
        (NoCredentialsError(), Failure.NO_CREDENTIALS),
        (ConnectionResetError(errno.ECONNRESET, "reset"), Failure.UNREACHABLE),
        (TimeoutError(), Failure.UNREACHABLE),
        (OSError(errno.ENOSPC, "No space left on device"), Failure.DISK_FULL),
        (OSError(errno.EDQUOT, "Quota exceeded"), Failure.DISK_FULL),
        (PermissionError(errno.EACCES, "Permission denied"), Failure.LOCAL),
        (FileNotFoundError("bucket/key"), Failure.MISSING),
        (ValueError("Invalid endpoint: nonsense"), Failure.NOT_S3),
        (ValueError("something else"), None),
        (KeyError("a mistake of ours"), None),
    ],
)
def test_errors_without_an_answer(error: Exception, failure: Failure | None) -> None:
    assert failure_of(error) is failure
    assert not is_answer(error)


def test_only_unreachable_and_busy_are_passing() -> None:
    assert [failure for failure in Failure if failure.is_passing] == [Failure.UNREACHABLE, Failure.BUSY]
