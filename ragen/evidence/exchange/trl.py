"""TRL's completions (`completions/completions_STEP.parquet`): a prompt and completion per row, a column per reward.

    row {step, prompt, completion, <reward function>..., advantage} -> Trace

Rewards are summed with weight 1, as the file has no weights. Rows of the same prompt and step form a group.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from starpo.ragen.core.errors import DataError, first_line
from starpo.ragen.evidence.exchange.content import number_of
from starpo.ragen.evidence.exchange.lines import Piece
from starpo.ragen.evidence.exchange.messages import as_messages, turns_of
from starpo.ragen.evidence.exchange.trace import Trace, TraceFault
from starpo.ragen.evidence.exchange.verl import prompt_group

_NO_REWARDS = ("step", "prompt", "completion", "advantage", "advantages")
_ROWS_AT_ONCE = 1_024


def parquet_rows(file: Path) -> Iterator[Piece]:
    """Read the rows of a file.

    Raises:
        DataError: If the file is not Parquet, or lacks the columns prompt and completion.
    """
    try:
        with pq.ParquetFile(file) as parquet:
            schema = parquet.schema_arrow
            missing = [name for name in ("prompt", "completion") if name not in schema.names]
            if missing:
                raise DataError(f"{file}: has no column {', '.join(missing)}; expected a file of TRL's completions")
            paid = [f.name for f in schema if f.name not in _NO_REWARDS and _is_number(f.type)]
            for batch in parquet.iter_batches(_ROWS_AT_ONCE):
                for number, row in enumerate(batch.to_pylist()):
                    told = {name: row.get(name) for name in ("step", "prompt", "completion")}
                    value = {**told, "rewards": {name: row[name] for name in paid}}
                    yield Piece(f"{file.name}: row {number}", value, "", str(told)[:2_000])
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{file}: is not Parquet: {first_line(error)}") from error


def read_trl(value: Mapping[str, Any]) -> Trace:
    """Read the trajectory of a row.

    Raises:
        TraceFault: If prompt or completion is neither text nor messages.
    """
    for name in ("prompt", "completion"):
        if not isinstance(value[name], str | list):
            raise TraceFault(f"{name} is neither text nor messages")
    # a reward function may skip a row, which leaves NaN
    given = {name: reward for name, reward in value["rewards"].items() if reward == reward}
    paid = [number_of(reward, name) for name, reward in given.items()]
    told = [reward for reward in paid if reward is not None]
    prompt = value["prompt"]
    if not isinstance(prompt, str):
        prompt = json.dumps(prompt, sort_keys=True, default=repr)  # Parquet has bytes and times, JSON does not
    return Trace(
        None,
        prompt_group(value["step"], prompt),
        "trl",
        turns_of([*as_messages(value["prompt"], "user"), *as_messages(value["completion"], "assistant")]),
        sum(told) if told else None,
    )


def _is_number(type_: pa.DataType) -> bool:
    return pa.types.is_floating(type_) or pa.types.is_integer(type_)
