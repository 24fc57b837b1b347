"""Import of external trajectories: files of dataset `turns`, accepted unchanged or rejected.

Parquet | Arrow | JSON lines -> read_turns -> rows of `turns`, which the store validates

Other stacks sample from the policy without search: a file without the columns `origin`, `num_candidates` and
`num_as_good` gets the values of rows that were sampled directly. The column `env` may be called `environment`, as in
the views of `starpo sql`.
"""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet as pq

from starpo.ragen.core.errors import DataError, first_line
from starpo.schemas.datasets import NO_RESPONSE, TURNS

_OF_SAMPLED_TURNS = {name: NO_RESPONSE[name] for name in ("origin", "num_candidates", "num_as_good")}


_MAY_BE_MISSING = {*_OF_SAMPLED_TURNS, "env"}


def _read_json(file: Path) -> pa.Table:
    required = pa.schema([field for field in TURNS.schema if field.name not in _MAY_BE_MISSING])
    options = pa.json.ParseOptions(explicit_schema=required, unexpected_field_behavior="infer")
    return pa.json.read_json(file, parse_options=options)


def _read_arrow(file: Path) -> pa.Table:
    with pa.OSFile(str(file)) as source:
        return pa.ipc.open_file(source).read_all()


_READERS: dict[str, tuple[str, Callable[[Path], pa.Table]]] = {
    ".parquet": ("Parquet", pq.read_table),
    ".arrow": ("an Arrow file", _read_arrow),
    ".feather": ("an Arrow file", _read_arrow),
    ".jsonl": ("JSON lines of dataset 'turns'", _read_json),
    ".ndjson": ("JSON lines of dataset 'turns'", _read_json),
}


def read_turns(file: Path) -> pa.Table:
    """Read the trajectories of one iteration. Columns may be in any order, and numbers of other widths are cast.

    Args:
        file: The suffix determines the format: .parquet, .arrow, .feather, .jsonl or .ndjson.

    Returns:
        Rows with the columns and types of dataset `turns`; the values are not validated yet.

    Raises:
        DataError: If the file cannot be read, has another format or no rows, or its columns are not those of `turns`.
    """
    if file.suffix not in _READERS:
        raise DataError(f"{file}: trajectories are read from {', '.join(_READERS)} files, found '{file.suffix}'")
    form, read = _READERS[file.suffix]
    try:
        table = read(file)
    except FileNotFoundError as error:
        raise DataError(f"{file}: there is no such file") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{file}: is not {form}: {first_line(error)}") from error
    if not table.num_rows:
        raise DataError(f"{file}: has no rows; give a file with the trajectories of an iteration")
    if "env" not in table.column_names:
        table = table.rename_columns(["env" if name == "environment" else name for name in table.column_names])
    for name, value in _OF_SAMPLED_TURNS.items():
        if name not in table.column_names:
            column = pa.repeat(pa.scalar(value, TURNS.schema.field(name).type), table.num_rows)
            table = table.append_column(name, column)
    names = TURNS.schema.names
    missing = [name for name in names if name not in table.column_names]
    unknown = [name for name in table.column_names if name not in names]
    if missing or unknown:
        faults = [
            f"{what}: {', '.join(columns)}" for what, columns in (("missing", missing), ("unknown", unknown)) if columns
        ]
        raise DataError(
            f"{file}: its columns are not those of the dataset 'turns' (version {TURNS.version}); {'; '.join(faults)}. "
            "`starpo sql --views` says what each column means"
        )
    return pa.Table.from_arrays([_cast(table, field, file) for field in TURNS.schema], schema=TURNS.schema)


def _cast(table: pa.Table, field: pa.Field, file: Path) -> pa.ChunkedArray:
    column = table.column(field.name)
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"{file}: column '{field.name}' is of type {column.type}, expected {field.type}, and does not fit: "
            f"{first_line(error)}"
        ) from error
