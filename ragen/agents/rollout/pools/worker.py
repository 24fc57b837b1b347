"""A process that plays shards with its own engine on one CPU thread.

    python -m starpo.ragen.agents.rollout.pools.worker ENGINE OPTIONS    the engine's name, and its options as JSON
    request: job and episodes as JSON -> LocalPlayer -> answer: `turns` as an Arrow stream, or an error as JSON

Messages are frames (`ragen.core.frames`) on standard input and output, which the code that is played cannot reach: it
finds an empty input, its output goes to standard error, and processes that it forks do not keep them open. The process
ends at the end of its input, so that no worker outlives its parent, and by SIGALRM if an environment hangs.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from starpo.ragen.agents.rollout.engine_spec import EngineSpec
from starpo.ragen.agents.rollout.episode import Episode
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.allocator import give_back_freed_memory
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.frames import read_frame, write_frame
from starpo.ragen.core.guard import end_if_hung

if TYPE_CHECKING:
    from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer

REQUEST, ROWS, FAILURE = b"Q", b"R", b"F"

ENDING_S = 10.0
"""Seconds for an engine to free its resources when its process ends."""


def pack_request(job: RolloutJob, episodes: Sequence[Episode]) -> bytes:
    """Serialise a shard for a worker."""
    return json.dumps({"job": job.to_json(), "episodes": [vars(episode) for episode in episodes]}).encode()


def unpack_request(payload: bytes) -> tuple[RolloutJob, list[Episode]]:
    """Read the output of `pack_request`."""
    request = json.loads(payload)
    return RolloutJob.from_json(request["job"]), [_episode(episode) for episode in request["episodes"]]


def _episode(values: dict[str, Any]) -> Episode:
    if "starts" not in values:
        return Episode(**values)
    from starpo.ragen.agents.rollout.branches import Branches

    return Branches(**values)


def failure(error: BaseException) -> bytes:
    """Serialise an error for the parent: library errors keep their type, others have its name in the message."""
    kind = type(error).__name__
    message = str(error) if isinstance(error, StarPOError) else f"{kind}: {error}"
    return json.dumps({"type": kind, "message": message}).encode()


def serve(make_player: Callable[[], "LocalPlayer"]) -> None:
    """Play the shards that are requested on standard input, until its end."""
    requests, answers = _own_streams()
    end_if_hung(Runtime.current().environment_s)
    waiting: SimpleQueue[bytes | None] = SimpleQueue()
    players: list[LocalPlayer] = []
    Thread(target=_receive, args=(requests, waiting, players), daemon=True).start()
    players.append(player := make_player())
    while (payload := waiting.get()) is not None:
        try:
            rows = player.play(*unpack_request(payload))
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            with suppress(BrokenPipeError):  # the parent has gone, which has stopped the player
                write_frame(answers, FAILURE, failure(error))
        else:
            write_frame(answers, ROWS, _as_stream(rows))
        give_back_freed_memory()


def _receive(requests: IO[bytes], waiting: "SimpleQueue[bytes | None]", players: "list[LocalPlayer]") -> None:
    """Queue requests until their end; then stop the players, and end this process even if one goes on."""
    with suppress(EOFError, OSError):
        while True:
            waiting.put(read_frame(requests)[1])
    with suppress(Exception):  # whatever it does, this process ends
        for player in players:
            player.stop()
    waiting.put(None)
    time.sleep(ENDING_S)
    os._exit(1)


def _own_streams() -> tuple[IO[bytes], IO[bytes]]:
    """Take standard input and output for requests and answers, out of reach of everything else here."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    first, second = requests.fileno(), answers.fileno()
    os.register_at_fork(after_in_child=lambda: os.close(first))
    os.register_at_fork(after_in_child=lambda: os.close(second))
    return requests, answers


def _as_stream(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def _player() -> "LocalPlayer":
    from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer

    return LocalPlayer(EngineSpec(*sys.argv[1:]).make(num_threads=1))


if __name__ == "__main__":
    serve(_player)
