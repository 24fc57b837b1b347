"""A rank of learner 'deepspeed', started by `ranks`: `python -m starpo.ragen.learning.learners.deepspeed.rank FOLDER`.

    request: JSON and trajectories -> the same update as in every learner, on this rank's share -> answer

Every rank receives and answers every request; rank 0's answer holds the result. The process exits as soon as the other
end of the socket closes, whatever it is doing, so that no rank outlives its parent process.
"""

import dataclasses
import json
import os
import socket
import sys
import traceback
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any, cast

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.config.device import Device
from starpo.ragen.config.policy import FineTuning
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import LearnerError, StarPOError
from starpo.ragen.core.frames import read_frame, write_frame
from starpo.ragen.learning.learners.companions.loading import CompanionModels
from starpo.ragen.learning.learners.data.tokens import trainable_tokens
from starpo.ragen.learning.learners.deepspeed.model import DeepSpeedModel, Ranks
from starpo.ragen.learning.learners.deepspeed.ranks import SOCKET
from starpo.ragen.learning.learners.deepspeed.trajectory_table import pack_table, unpack_examples, unpack_trajectories
from starpo.ragen.learning.learners.learner import NOTHING_LOADED, OnProgress, UpdateContext
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.models.checkpoint import (
    Checkpoint,
    load_trained,
    restore,
    save_checkpoint,
    save_policy,
)
from starpo.ragen.learning.learners.models.scoring import ResponseScores, check_output_layer, network_of, row_tokens
from starpo.ragen.learning.learners.supervised import in_prefix_rows, learn, prepare_policy
from starpo.ragen.learning.learners.update import update_models
from starpo.ragen.learning.learners.update_inputs import UpdateInputs

HELLO, REQUEST, DATA, PROGRESS, ANSWER, FAILURE = b"H", b"Q", b"D", b"P", b"A", b"F"
COLLECTIVE_TIMEOUT = timedelta(minutes=30)
"""A rank that waits longer for the others fails: one of them hangs."""


@dataclass
class _Held:
    """Loaded state of a rank.

    Attributes:
        checkpoint: The loaded checkpoint; its models are inside `models`, its optimiser states are dropped.
        models: 'policy', and the trained companions by name.
        row_tokens: Maximum tokens of a row in which segments share a prefix.
        num_restarted: Number of optimisers that were re-initialised.
    """

    checkpoint: Checkpoint
    models: dict[str, DeepSpeedModel]
    row_tokens: int
    num_restarted: int


class RankLearner:
    """One rank's part of the learner; every rank must make every call."""

    def __init__(self, device: torch.device, on_progress: OnProgress | None = None) -> None:
        """Join the other ranks; the process group must be initialised.

        Args:
            device: Device of this rank.
            on_progress: Called with the progress of a request; None on all ranks but one.
        """
        self.device = device
        self._on_progress = on_progress
        self.dp_group = Ranks(device)
        # no autocast: with bfloat16 DeepSpeed keeps the weights themselves in bfloat16
        self._runner = MicroBatchRunner(Device.here(), 1, "float32")
        self._config: UpdateConfig | None = None
        self._companions: CompanionModels | None = None
        self._held: _Held | None = None

    def load(
        self, config: str, folder: str | None, checkpoint_key: str, reference_folder: str | None, is_there: bool
    ) -> None:
        """See `Learner.load`; `is_there`: the learner already holds this checkpoint, with these settings."""
        if not is_there:
            self._config = UpdateConfig.model_validate_json(config)
            load_frozen = partial(_load_frozen, self.device, self._config.dtype)  # no cycle: freed when dropped
            self._companions = CompanionModels(self._config, load_frozen)
        assert self._config is not None
        assert self._companions is not None
        self._companions.load(reference_folder, None if is_there else folder)
        if not is_there:
            assert folder is not None
            self._load(self._config, folder, checkpoint_key)

    def fine_tune(
        self, examples: bytes, config: str, tuning: str, folder: str, output: str
    ) -> tuple[dict[str, Any], bytes]:
        """See `FineTuner.fine_tune`.

        Args:
            examples: What is imitated, packed.
            config: Settings of the update, as JSON, for the sharding.
            tuning: Settings of the fine-tuning, as JSON.
            folder: Folder of the policy.
            output: File that rank 0 writes the trained weights to, float32.
        """
        self._release()
        sharding = UpdateConfig.model_validate_json(config).learner_config.sharding
        tuned = FineTuning.model_validate_json(tuning)
        model, _ = load_policy(folder, tuned.dtype if tuned.lora else torch.float32)
        schedule = prepare_policy(model, tuned)
        split = in_prefix_rows(tuned.micro_batch_tokens, row_tokens(model), self.dp_group.size, self.dp_group.rank)
        network = ResponseScores(model, is_cut_up=sharding.stage == 3)
        trained = DeepSpeedModel(network, "model.", schedule, sharding, tuned.dtype, self.device)
        given = unpack_examples(examples)
        loss = learn(
            trained, given.segments, tuned.steps, tuned.batch_size, tuned.seed, self._runner, split,
            self.dp_group, self._on_progress, given.images,
        )  # fmt: skip
        weights = trained.weights()
        if self.dp_group.rank == 0:
            save_file(weights, output)
        trained.destroy()
        dist.barrier()
        return loss, b""

    def update(self, trajectories: bytes, context: UpdateContext) -> tuple[dict[str, Any], bytes]:
        """See `Learner.update`."""
        held = self._loaded()
        result = update_models(self._inputs(held, trajectories, context))
        held.checkpoint.trainer = held.checkpoint.trainer.after(result.metrics)
        held.num_restarted = 0
        assert result.trained_tokens is not None
        samples, tokens = pack_table(result.samples), pack_table(result.trained_tokens())
        return {"metrics": result.metrics, "timings": result.timings, "size": len(samples)}, samples + tokens

    def save(self, folder: str) -> None:
        """See `Learner.save`; rank 0 writes."""
        stored, weights = self._gathered()
        if self.dp_group.rank == 0:
            save_checkpoint(stored, folder, weights)
        dist.barrier()

    def save_policy(self, folder: str) -> dict[str, Any]:
        """See `Learner.save_policy`; rank 0 writes and hashes."""
        stored, weights = self._gathered()
        files = save_policy(stored, folder, weights) if self.dp_group.rank == 0 else []
        dist.barrier()
        return {"files": [entry.model_dump() for entry in files]}

    def _gathered(self) -> tuple[Checkpoint, dict[str, dict[str, torch.Tensor]]]:
        """Gather the checkpoint and the weights from all ranks; complete at rank 0."""
        held = self._loaded()
        weights = {name: model.weights() for name, model in held.models.items()}
        states = {name: model.state_tensors() for name, model in held.models.items()}
        types = {name: model.config.type for name, model in held.models.items()}
        trainer = held.checkpoint.trainer.model_copy(update={"optimisers": types})
        return dataclasses.replace(held.checkpoint, optimiser_states=states, trainer=trainer), weights

    def _release(self) -> None:
        if self._held is not None:
            for model in self._held.models.values():
                model.destroy()
            self._held = None

    def _load(self, config: UpdateConfig, folder: str, checkpoint_key: str) -> None:
        self._release()
        dtype, sharding = getattr(torch, config.dtype), config.learner_config.sharding
        is_cut_up = sharding.stage == 3
        checkpoint = load_trained(folder, config, checkpoint_key, dtype, is_cut_up=is_cut_up)
        check_output_layer(checkpoint.policy)
        shared = row_tokens(checkpoint.policy)
        optimisers = config.optimisers
        models = {}
        for name, model in checkpoint.trained.items():
            network, prefix = network_of(model, is_cut_up=is_cut_up)
            models[name] = DeepSpeedModel(network, prefix, optimisers[name], sharding, config.dtype, self.device)
        num_restarted = restore(models, checkpoint, folder)
        checkpoint.optimiser_states = {}
        self._held = _Held(checkpoint, models, shared, num_restarted)

    def _inputs(self, held: _Held, trajectories: bytes, context: UpdateContext) -> UpdateInputs:
        given = unpack_trajectories(trajectories)
        assert self._config is not None
        assert self._companions is not None
        policy = held.models["policy"]
        return UpdateInputs(
            config=self._config,
            context=context,
            policy=policy,
            companions=self._companions.loaded(held.checkpoint.policy, policy, held.models),
            trajectories=given,
            tokens=trainable_tokens(given),
            row_tokens=held.row_tokens,
            runner=self._runner.reporting(self._on_progress),
            dp_group=self.dp_group,
            num_restarted=held.num_restarted,
            entropy_level=held.checkpoint.trainer.entropy_level,
        )

    def _loaded(self) -> _Held:
        if self._held is None:
            raise LearnerError(NOTHING_LOADED)
        return self._held


def _load_frozen(device: torch.device, dtype: str, folder: str) -> ResponseScores:
    policy, _ = load_policy(folder, dtype)
    check_output_layer(policy)
    return ResponseScores(policy.to(device).requires_grad_(False))  # type: ignore[arg-type]


def serve(learner: RankLearner, requests: "SimpleQueue[tuple[dict[str, Any], bytes]]", answers: IO[bytes]) -> None:
    """Answer requests forever; the thread that reads requests ends the process."""
    while True:
        request, data = requests.get()
        verb = request.pop("verb")
        try:
            if "context" in request:
                request["context"] = UpdateContext(**request["context"])
            header, payload = _answer(learner, verb, request, data)
        except Exception as error:
            traceback.print_exc()
            failure = {"type": type(error).__name__, "message": _message(error)}
            write_frame(answers, FAILURE, json.dumps(failure).encode())
        else:
            write_frame(answers, ANSWER, json.dumps(header).encode())
            write_frame(answers, DATA, payload if learner.dp_group.rank == 0 else b"")


def _answer(learner: RankLearner, verb: str, request: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
    if verb in ("fine_tune", "update"):
        answered: tuple[dict[str, Any], bytes] = getattr(learner, verb)(data, **request)
        return answered
    assert verb in ("load", "save", "save_policy")
    return getattr(learner, verb)(**request) or {}, b""


def _message(error: Exception) -> str:
    # Errors of the library keep their type; for other errors the message names the type.
    return str(error) if isinstance(error, StarPOError) else f"{type(error).__name__}: {error}"


def _read(requests: IO[bytes], queue: "SimpleQueue[tuple[dict[str, Any], bytes]]") -> None:
    try:
        while True:
            _, request = read_frame(requests)
            _, data = read_frame(requests)
            queue.put((json.loads(request), data))
    except (EOFError, OSError):
        os._exit(0)  # the main thread may be waiting for ranks that have ended too


def main(folder: str) -> None:
    """Connect, join the other ranks, serve.

    Args:
        folder: Folder shared by all ranks and private to this user; holds the socket and the rendezvous file.
    """
    rank, local_rank, num_ranks = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(Path(folder) / SOCKET))
    stream = cast(IO[bytes], connection.makefile("rwb"))
    write_frame(stream, HELLO, json.dumps({"rank": rank, "pid": os.getpid()}).encode())
    queue: SimpleQueue[tuple[dict[str, Any], bytes]] = SimpleQueue()
    Thread(target=_read, args=(stream, queue), daemon=True).start()

    torch.set_num_threads(1)
    device = torch.device("cpu")
    if Device.here().is_gpu:
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    store = dist.FileStore(str(Path(folder) / "rendezvous"), num_ranks)  # a TCPStore would listen on all interfaces
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=COLLECTIVE_TIMEOUT, store=store, rank=rank, world_size=num_ranks)
    import deepspeed

    # DeepSpeed's own shared-memory collectives take two minutes to compile on first use; gloo is sufficient
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_init_required=False)

    def report(done: int, total: int) -> None:
        write_frame(stream, PROGRESS, json.dumps([done, total]).encode())

    learner = RankLearner(device, report if rank == 0 else None)
    write_frame(stream, ANSWER, b"{}")
    serve(learner, queue, stream)


if __name__ == "__main__":
    main(sys.argv[1])
