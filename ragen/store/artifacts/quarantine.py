"""Quarantine: datasets that break their contract, kept completely, with the reasons, apart from the artifacts.

<store>/quarantine/<kind>-<key>-<digest>/    data.parquet   failure_cases.parquet   reason.txt

The digest is that of the data, so that the same data are kept once, however often they are met. The reason is written
last: without it, a copy was cut off, and is made again.
"""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from starpo.ragen.core.errors import DataError, StoreError, first_line
from starpo.ragen.store.remote.location import Location
from starpo.schemas.violation import ContractViolation

DATA_NAME = "data.parquet"
CASES_NAME = "failure_cases.parquet"
REASON_NAME = "reason.txt"

_DIGEST_DIGITS = 16


def quarantine(location: Location, data: list[Path], key: str, violation: ContractViolation) -> DataError:
    """Put invalid data into quarantine, unless they are there.

    Args:
        location: The store. If it cannot be written, the error says so.
        data: Its Parquet files; several become `data.parquet`, `data-1.parquet`, ...
        key: Key of the artifact that the data are, or were to become.
        violation: What is wrong with them.

    Returns:
        The error to raise.
    """
    folder = f"quarantine/{violation.kind}-{key}-{_digest(data)}"
    try:
        if REASON_NAME not in location.names(folder):
            _keep(location, data, folder, violation)
    except StoreError as error:
        return DataError(f"{violation.message}\nThe data could not be kept in quarantine: {first_line(error)}")
    where = f"{location.name.rstrip('/')}/{folder}"
    return DataError(f"{violation.message}\nThe data and a table of all failure cases are kept in {where}")


def _keep(location: Location, data: list[Path], folder: str, violation: ContractViolation) -> None:
    for number, file in enumerate(data):
        location.upload(file, f"{folder}/{f'data-{number}.parquet' if number else DATA_NAME}")
    cases = pa.BufferOutputStream()
    pq.write_table(violation.failure_cases, cases)
    location.replace(f"{folder}/{CASES_NAME}", cases.getvalue().to_pybytes())
    reason = f"{violation.message}\n\nKept aside on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC\n"
    location.replace(f"{folder}/{REASON_NAME}", reason.encode())


def _digest(files: list[Path]) -> str:
    sha256 = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            sha256.update(hashlib.file_digest(stream, "sha256").digest())
    return sha256.hexdigest()[:_DIGEST_DIGITS]
