"""Trajectories and examples as an Arrow stream, to be sent to another process; the round trip is exact.

[Trajectory] -> pack_trajectories -> bytes -> unpack_trajectories -> [Trajectory]
[Example], ImageTable -> pack_examples -> bytes -> unpack_examples -> Batch

Images travel in the metadata of the stream, each once.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_table import ImageTable
from starpo.ragen.learning.examples import Batch, Example
from starpo.ragen.learning.learners.data.paid import PaidTrajectory
from starpo.ragen.learning.learners.data.trajectories import Segment, Trajectory

_TOKENS = {
    "token_ids": pa.int64(),
    "response_mask": pa.bool_(),
    "behaviour_logprobs": pa.float32(),
    "turn": pa.int64(),
    "kind": pa.int8(),
}
_IMAGES = b"images"
_EXAMPLE = ("token_ids", "response_mask")
_TURNS = {
    "turn_rewards": pa.float64(),
    "states": pa.int64(),
    "reasoning": pa.string(),
    "turn_weights": pa.float64(),
}
_MEASURED = {
    "teacher_logprobs": pa.float32(),
    "top_token_ids": pa.int32(),
    "top_logprobs": pa.float32(),
    "true_advantages": pa.float64(),
}
"""Lists that trajectories have where a stage before the update measured them."""
_SCHEMA = pa.schema(
    {
        "trajectory_id": pa.string(),
        "group_id": pa.string(),
        "trajectory_return": pa.float64(),
        "normalised_return": pa.float64(),
        "greedy_return": pa.float64(),
        **{name: pa.list_(dtype) for name, dtype in _TURNS.items()},
        **{name: pa.list_(pa.list_(dtype)) for name, dtype in _TOKENS.items()},
    }
)
"""One row per trajectory. Per-turn columns are lists; per-token columns are lists (segments) of lists (tokens)."""


def pack_trajectories(trajectories: Sequence[Trajectory]) -> bytes:
    """Serialise trajectories."""
    segments = [segment for trajectory in trajectories for segment in trajectory.segments]
    of_trajectories = _offsets([len(trajectory.segments) for trajectory in trajectories])
    of_segments = _offsets([len(segment.token_ids) for segment in segments])

    def tokens(name: str, dtype: pa.DataType) -> pa.Array:
        values = pa.array(_end_to_end([getattr(segment, name) for segment in segments]), dtype)
        return pa.ListArray.from_arrays(of_trajectories, pa.ListArray.from_arrays(of_segments, values))

    arrays = [
        pa.array([trajectory.trajectory_id for trajectory in trajectories], pa.string()),
        pa.array([trajectory.group_id for trajectory in trajectories], pa.string()),
        pa.array([trajectory.trajectory_return for trajectory in trajectories], pa.float64()),
        pa.array([trajectory.normalised_return for trajectory in trajectories], pa.float64()),
        pa.array([trajectory.greedy_return for trajectory in trajectories], pa.float64()),
        *(pa.array([getattr(one, name) for one in trajectories], pa.list_(dtype)) for name, dtype in _TURNS.items()),
        *(tokens(name, dtype) for name, dtype in _TOKENS.items()),
    ]
    table = pa.Table.from_arrays(arrays, schema=_SCHEMA)
    for name, dtype in _MEASURED.items():
        if trajectories and getattr(trajectories[0], name) is not None:
            values = pa.array([getattr(one, name) for one in trajectories], pa.list_(dtype))
            table = table.append_column(name, values)
    paid = [trajectory.component_returns for trajectory in trajectories if isinstance(trajectory, PaidTrajectory)]
    if paid:
        pairs = pa.array([list(one.items()) for one in paid], pa.map_(pa.string(), pa.float64()))
        table = table.append_column("component_returns", pairs)
    return pack_table(_with_images(table, trajectories[0].images if trajectories else None))


def unpack_trajectories(data: bytes) -> list[Trajectory]:
    """Deserialise the output of `pack_trajectories`."""
    table = unpack_table(data).combine_chunks()
    columns = {name: _nested(table[name].combine_chunks()) for name in _TOKENS}
    names = ["trajectory_id", "group_id", "trajectory_return", "normalised_return", "greedy_return"]
    rows, images = table.select(names).to_pylist(), _images(table)
    trajectories = [
        Trajectory(
            row["trajectory_id"],
            row["group_id"],
            tuple(Segment(*parts) for parts in zip(*(columns[name][index] for name in _TOKENS), strict=True)),
            trajectory_return=row["trajectory_return"],
            normalised_return=row["normalised_return"],
            greedy_return=row["greedy_return"],
            images=images,
            **{name: table[name][index].values.to_numpy(zero_copy_only=False) for name in _TURNS},
        )
        for index, row in enumerate(rows)
    ]
    for name in _MEASURED:
        if name in table.column_names:
            values = [row.values.to_numpy(zero_copy_only=False) for row in table[name]]
            trajectories = [replace(one, **{name: row}) for one, row in zip(trajectories, values, strict=True)]
    if "component_returns" not in table.column_names:
        return trajectories
    paid = zip(trajectories, table["component_returns"].to_pylist(), strict=True)
    return [PaidTrajectory(**vars(one), component_returns=dict(pairs)) for one, pairs in paid]


def pack_examples(examples: Sequence[Example], images: ImageTable | None = None) -> bytes:
    """Serialise examples of supervised learning, and their images if they have any."""
    columns = {name: [getattr(example, name) for example in examples] for name in _EXAMPLE}
    table = pa.table({name: pa.array(columns[name], pa.list_(_TOKENS[name])) for name in _EXAMPLE})
    return pack_table(_with_images(table, images))


def unpack_examples(data: bytes) -> Batch:
    """Deserialise the output of `pack_examples`."""
    table = unpack_table(data)
    rows = ([row.values.to_numpy(zero_copy_only=False) for row in table[name]] for name in _EXAMPLE)
    return Batch([Example(*row) for row in zip(*rows, strict=True)], _images(table))


def pack_table(table: pa.Table) -> bytes:
    """Serialise a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def unpack_table(data: bytes) -> pa.Table:
    """Deserialise the output of `pack_table`."""
    return pa.ipc.open_stream(data).read_all()


def _with_images(table: pa.Table, images: ImageTable | None) -> pa.Table:
    if images is None:
        return table
    pngs = [image.to_png(is_compressed=False) for image in images.images]
    packed = pack_table(pa.table({"png": pngs, "num_tokens": images.num_tokens_of}))
    return table.replace_schema_metadata({_IMAGES: packed})


def _images(table: pa.Table) -> ImageTable | None:
    """Return the images with the ids that they had, which follow from their order."""
    packed = (table.schema.metadata or {}).get(_IMAGES)
    if packed is None:
        return None
    images = ImageTable()
    for row in unpack_table(packed).to_pylist():
        images.ids(Image.from_png(row["png"]), row["num_tokens"])
    return images


def _nested(column: pa.ListArray) -> list[list[np.ndarray]]:
    """Return the segment arrays of each row."""
    inner = column.values
    values = inner.values.to_numpy(zero_copy_only=False)
    parts = np.split(values, inner.offsets.to_numpy()[1:-1]) if len(inner) else []
    bounds = column.offsets.to_numpy()
    return [parts[start:stop] for start, stop in itertools.pairwise(bounds)]


def _offsets(lengths: Sequence[int]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int32))


def _end_to_end(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.empty(0)
