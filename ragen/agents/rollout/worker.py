"""A process that plays shards with its own engine on one CPU thread.

    python -m starpo.ragen.agents.rollout.worker ENGINE OPTIONS    the engine's name, and its options as JSON
    request: job and episodes as JSON -> LocalPlayer -> answer: `turns` as an Arrow stream, or an error as JSON

Messages are frames (`ragen.core.frames`) on standard input and output. The process ends at the end of its input, so
that no worker outlives its parent.
"""

import json
import os
import sys
from collections.abc import Sequence
from typing import IO

import pyarrow as pa

from starpo.ragen.agents.rollout.engine_spec import EngineSpec
from starpo.ragen.agents.rollout.episode import Episode
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.frames import read_frame, write_frame

REQUEST, ROWS, FAILURE = b"Q", b"R", b"F"


def pack_request(job: RolloutJob, episodes: Sequence[Episode]) -> bytes:
    """Serialise a shard for a worker."""
    return json.dumps({"job": job.to_json(), "episodes": [vars(episode) for episode in episodes]}).encode()


def unpack_request(payload: bytes) -> tuple[RolloutJob, list[Episode]]:
    """Read the output of `pack_request`."""
    request = json.loads(payload)
    return RolloutJob.from_json(request["job"]), [Episode(**episode) for episode in request["episodes"]]


def failure(error: Exception) -> bytes:
    """Serialise an error for the parent: library errors keep their type, others have its name in the message."""
    kind = type(error).__name__
    message = str(error) if isinstance(error, StarPOError) else f"{kind}: {error}"
    return json.dumps({"type": kind, "message": message}).encode()


def serve(spec: EngineSpec, requests: IO[bytes], answers: IO[bytes]) -> None:
    """Play requested shards until the end of the request stream."""
    from starpo.ragen.agents.rollout.local_player import LocalPlayer

    player = LocalPlayer(spec.make(num_threads=1))
    while True:
        try:
            _, payload = read_frame(requests)
        except EOFError:
            return
        try:
            rows = player.play(*unpack_request(payload))
        except Exception as error:
            write_frame(answers, FAILURE, failure(error))
        else:
            write_frame(answers, ROWS, _as_stream(rows))


def _as_stream(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output printed by libraries must not be mixed into the answers
    serve(EngineSpec(*sys.argv[1:]), sys.stdin.buffer, answers)
