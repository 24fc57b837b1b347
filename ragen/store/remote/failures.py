"""Meaning of errors of a file system or of object storage: whether they are transient, about the file, and what helps.

An S3 server identifies an error by a code in its response. Its message is not relied upon: Ceph's gateway sends none.

error -> failure_of -> Failure(is_passing, advice)
"""

import errno
from enum import Enum
from typing import Any


class Failure(Enum):
    """What is wrong. The value is advice on what to do about it."""

    MISSING = "Check the store's address: there is no such file."
    EXISTS = "Something else wrote it first."
    BEYOND_END = "The file is shorter than it was."
    NO_BUCKET = "Create the bucket first (aws s3 mb s3://NAME), or correct the store's address."
    CREDENTIALS = (
        "Check the credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or ~/.aws/credentials): "
        "the server does not know the key, or the secret does not match it."
    )
    NO_CREDENTIALS = (
        "Check the credentials: none were found. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."
    )
    DENIED = "Check the credentials' rights: listing, reading, writing and deleting below the store's address."
    CLOCK = "The clocks of this machine and of the server differ too much: correct this machine's clock."
    REGION = "The bucket is in another region: set AWS_DEFAULT_REGION to it (or AWS_ENDPOINT_URL to its server)."
    NOT_S3 = "The server at that address does not speak S3: check AWS_ENDPOINT_URL."
    SECURE = "No secure connection: check http:// or https:// in AWS_ENDPOINT_URL, and the server's certificate."
    STORAGE_FULL = (
        "The object storage is full: free some space there (`starpo store gc` deletes what no run needs); nothing was "
        "lost, run the same command again."
    )
    DISK_FULL = "The disk of this machine is full: free some space; nothing was lost, run the same command again."
    LOCAL = "Check that this machine's folder for temporary files (TMPDIR) and ~/.cache can be written."
    REFUSED = "The server does not support this operation: its S3 is incomplete."
    UNREACHABLE = (
        "Check that the server runs and can be reached (AWS_ENDPOINT_URL for one that is not Amazon's); nothing was "
        "lost, run the same command again."
    )
    BUSY = "The server fails or is overloaded; nothing was lost, run the same command again later."

    @property
    def is_passing(self) -> bool:
        """Whether a retry may succeed."""
        return self in (Failure.UNREACHABLE, Failure.BUSY)


_CODES = {
    "NoSuchKey": Failure.MISSING,
    "NoSuchBucket": Failure.NO_BUCKET,
    "PreconditionFailed": Failure.EXISTS,
    "InvalidRange": Failure.BEYOND_END,
    "InvalidAccessKeyId": Failure.CREDENTIALS,
    "SignatureDoesNotMatch": Failure.CREDENTIALS,
    "ExpiredToken": Failure.CREDENTIALS,
    "InvalidToken": Failure.CREDENTIALS,
    "TokenRefreshRequired": Failure.CREDENTIALS,
    "RequestTimeTooSkewed": Failure.CLOCK,
    "PermanentRedirect": Failure.REGION,
    "AuthorizationHeaderMalformed": Failure.REGION,
    "IllegalLocationConstraintException": Failure.REGION,
    "XMinioStorageFull": Failure.STORAGE_FULL,
    "QuotaExceeded": Failure.STORAGE_FULL,
    "ServiceQuotaExceeded": Failure.STORAGE_FULL,
    "InsufficientStorage": Failure.STORAGE_FULL,
    # The data were corrupted in transit, or the upload was lost: a retry may succeed.
    "BadDigest": Failure.BUSY,
    "IncompleteBody": Failure.BUSY,
    "XAmzContentSHA256Mismatch": Failure.BUSY,
    "NoSuchUpload": Failure.BUSY,
    "InvalidPart": Failure.BUSY,
    "RequestTimeout": Failure.BUSY,
    "ConditionalRequestConflict": Failure.BUSY,
    "OperationAborted": Failure.BUSY,
    "404": Failure.NOT_S3,  # an S3 server would say what is missing
    "405": Failure.NOT_S3,
}
_STATUSES = {
    301: Failure.REGION,
    307: Failure.REGION,
    403: Failure.DENIED,
    408: Failure.BUSY,
    409: Failure.BUSY,
    412: Failure.EXISTS,
    425: Failure.BUSY,
    429: Failure.BUSY,
    501: Failure.REFUSED,
    507: Failure.STORAGE_FULL,
}
_NO_CREDENTIALS = ("Credential", "ProfileNotFound", "TokenRetrieval", "SSO")
_LIBRARIES = ("botocore", "aiobotocore", "aiohttp", "fsspec", "s3fs", "urllib3")


def failure_of(error: BaseException) -> Failure | None:
    """Classify an error of object storage, or of the disk of the machine that uses it; None if it is neither."""
    response = _response(error)
    if response is not None:
        return _of_answer(response)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Failure.DISK_FULL
    if isinstance(error, FileNotFoundError):
        return Failure.MISSING
    if isinstance(error, FileExistsError):
        return Failure.EXISTS
    if isinstance(error, ValueError) and "invalid endpoint" in str(error).lower():
        return Failure.NOT_S3
    library, name = type(error).__module__.partition(".")[0], type(error).__name__
    if library not in _LIBRARIES and not isinstance(error, OSError):
        return None
    if any(word in name for word in _NO_CREDENTIALS):
        return Failure.NO_CREDENTIALS
    if "SSL" in name or "Certificate" in name:
        return Failure.SECURE
    if "ParserError" in name:
        return Failure.NOT_S3
    if isinstance(error, PermissionError) and error.errno is None:  # raised by s3fs itself, without a response
        return Failure.DENIED
    is_local = library not in _LIBRARIES and not isinstance(error, ConnectionError | TimeoutError)
    return Failure.LOCAL if is_local and getattr(error, "errno", None) is not None else Failure.UNREACHABLE


def is_answer(error: BaseException) -> bool:
    """Whether the error is a response of an S3 server."""
    return _response(error) is not None


def describe(error: BaseException) -> str:
    """Describe the error in a few words: the server's code and message if it responded, else the error's own."""
    response = _response(error)
    if response is None:
        return f"{type(error).__name__}: {error}" if str(error) else "no answer in time"
    code, message = response["Error"].get("Code"), response["Error"].get("Message")
    return f"the server answered {_status(response) or ''} {code or ''}{f': {message}' if message else ''}".strip()


def _of_answer(response: dict[str, Any]) -> Failure:
    code, status = str(response["Error"].get("Code") or ""), _status(response)
    if code in _CODES:
        return _CODES[code]
    if status in _STATUSES:
        return _STATUSES[status]
    if not code and status < 500:
        return Failure.NOT_S3
    return Failure.BUSY if status >= 500 or status == 0 else Failure.REFUSED


def _response(error: BaseException | None) -> dict[str, Any] | None:
    """Return the S3 server's response behind an error, which s3fs converts to a Python exception."""
    for _ in range(3):
        response = getattr(error, "response", None)
        if isinstance(response, dict) and isinstance(response.get("Error"), dict):
            return response
        error = None if error is None else error.__cause__
    return None


def _status(response: dict[str, Any]) -> int:
    return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
