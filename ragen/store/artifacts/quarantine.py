"""Quarantine: datasets that break their contract, kept completely, with the reasons, apart from the artifacts.

<store>/quarantine/<kind>-<key>-<n>/    data.parquet   failure_cases.parquet   reason.txt
"""

import uuid
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq

from starpo.ragen.core.errors import DataError
from starpo.ragen.store.remote.location import Location
from starpo.schemas.validate import ContractViolation

DATA_NAME = "data.parquet"
CASES_NAME = "failure_cases.parquet"
REASON_NAME = "reason.txt"


def quarantine(
    location: Location, data: list[Path], scratch: Path, key: str, violation: ContractViolation
) -> DataError:
    """Put invalid data into quarantine.

    Args:
        location: The store.
        data: Its Parquet files; several become `data.parquet`, `data-1.parquet`, ...
        scratch: A local folder to write into.
        key: Key of the artifact that the data are, or were to become.
        violation: What is wrong with them.

    Returns:
        The error to raise.
    """
    reason = f"{violation.message}\n\nKept aside on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC ({uuid.uuid4().hex})\n"
    folder = _claimed_folder(location, f"{violation.kind}-{key}", reason.encode())
    cases = scratch / CASES_NAME
    pq.write_table(violation.failure_cases, cases)
    for number, file in enumerate(data):
        location.upload(file, f"{folder}/{f'data-{number}.parquet' if number else DATA_NAME}")
    location.upload(cases, f"{folder}/{CASES_NAME}")
    where = f"{location.name.rstrip('/')}/{folder}"
    return DataError(f"{violation.message}\nThe data and a table of all failure cases are kept in {where}")


def _claimed_folder(location: Location, name: str, reason: bytes) -> str:
    """Return the folder of the first free number, claimed by creating the reason file: two writers never share one."""
    number = 0
    while not location.create(f"quarantine/{name}-{number}/{REASON_NAME}", reason):
        number += 1
    return f"quarantine/{name}-{number}"
