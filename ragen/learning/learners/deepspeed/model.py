"""`DeepSpeedModel`: a model and its AdamW, sharded over ranks by ZeRO; and `Ranks`, the group of ranks.

Weights, moments and gradients are exchanged unsharded, under the torch learner's parameter names.

DeepSpeed divides gradients by the number of ranks. Losses here are sums over the tokens of all ranks and already hold
the denominator of the whole mini-batch, so they are first multiplied by the number of ranks.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
from torch import Tensor, nn

from starpo.ragen.config.device import Device
from starpo.ragen.config.learner import Sharding
from starpo.ragen.config.update import OptimiserConfig
from starpo.ragen.learning.learners.data.batches import MicroBatch
from starpo.ragen.learning.learners.micro_batch_runner import WITH_BACKWARD, MicroBatchRunner
from starpo.ragen.learning.learners.models.trained_model import LossOf, no_check, sum_of

_MOMENTS = ("exp_avg", "exp_avg_sq")


class Ranks:
    """Implements `ragen.learning.learners.data_parallel.DataParallelGroup` over torch's default process group."""

    def __init__(self, device: torch.device) -> None:
        """Join torch's default process group, which must be initialised.

        Args:
            device: Device of this rank.
        """
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._device = device

    def sum(self, values: Tensor) -> Tensor:
        """See `DataParallelGroup.sum`."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def largest(self, values: Tensor) -> Tensor:
        """See `DataParallelGroup.largest`."""
        return self._reduced(values, dist.ReduceOp.MAX)

    def _reduced(self, values: Tensor, operation: Any) -> Tensor:
        total = values.to(self._device, copy=True)
        dist.all_reduce(total, operation)
        return total.to(values.device)


class DeepSpeedModel:
    """Implements `ragen.learning.learners.models.trained_model.TrainedModel`; every rank must make every call."""

    def __init__(
        self,
        network: nn.Module,
        prefix: str,
        config: OptimiserConfig,
        sharding: Sharding,
        dtype: str,
        device: torch.device,
    ) -> None:
        """Wrap a network in a DeepSpeed engine.

        Args:
            network: Called with micro-batches; float32 except for frozen weights, on the CPU, identical on all ranks.
            prefix: Prefix of its parameter names that the torch learner's names do not have.
            config: Settings of AdamW.
            sharding: ZeRO stage and offload.
            dtype: 'float32', or 'bfloat16' for weights and passes in bfloat16 with a float32 copy of what is trained.
            device: Device of this rank.
        """
        self.config = config
        self._world_size = dist.get_world_size()
        self._stage = sharding.stage
        self._parameters = {name.removeprefix(prefix): p for name, p in network.named_parameters() if p.requires_grad}
        exact = {} if dtype == "float32" else {n: p.detach().clone() for n, p in self._parameters.items()}
        optimiser = torch.optim.AdamW(
            self._parameters.values(),
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
            fused=True,
        )
        self._engine, *_ = deepspeed.initialize(
            model=network.to(device), optimizer=optimiser, config=_deepspeed_config(config, sharding, dtype)
        )
        self._zero, self._adamw = self._engine.optimizer, self._engine.optimizer.optimizer
        self._begin_state(0.0)
        for name, value in exact.items():  # DeepSpeed made its float32 copies from weights already rounded to bfloat16
            self._write(name, value.to(device), None)

    def __call__(self, batch: MicroBatch, *arguments: Any) -> Any:
        """See `TrainedModel`."""
        return self._engine(batch, *arguments)

    def accumulate(
        self,
        loss: LossOf,
        batches: Sequence[MicroBatch],
        runner: MicroBatchRunner,
        check: Callable[[], None] = no_check,
    ) -> float:
        """See `TrainedModel.accumulate`; all ranks must have equally many micro-batches."""
        reports = []
        for index, batch in enumerate(batches):
            self._engine.set_gradient_accumulation_boundary(index == len(batches) - 1)
            ((of_batch, reported),) = runner.run(loss, [batch], WITH_BACKWARD)
            self._engine.backward(of_batch * self._world_size, scale_wrt_gas=False)
            reports.append(reported)
        check()
        return sum_of(reports)

    def step(self, factor: float) -> float:
        """See `TrainedModel.step`."""
        for group in self._adamw.param_groups:
            group["lr"] = self.config.learning_rate * factor
        self._engine.step()
        return float(self._engine.get_global_grad_norm())

    def weights(self) -> dict[str, Tensor]:
        """Return all trained weights by name, unsharded, float32 on the CPU; on rank 0 only."""
        return self._gathered(safe_get_full_fp32_param)

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the state named as in `ModelOptimiser.state_tensors` (kind 'adamw'), moments on rank 0 only; empty
        before the first step."""
        step = self._num_steps()
        if not step:
            return {}
        tensors = {f"adamw/step/{name}": torch.tensor(float(step)) for name in self._parameters}
        for slot in _MOMENTS:
            moments = self._gathered(partial(safe_get_full_optimizer_state, optim_state_key=slot))
            tensors |= {f"adamw/{slot}/{name}": tensor for name, tensor in moments.items()}
        return tensors

    def _gathered(self, gather: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Gather a tensor of every parameter, one at a time on the device; rank 0 keeps them, in its host's memory."""
        kept = {}
        for name, parameter in self._parameters.items():
            whole = gather(parameter)
            if dist.get_rank() == 0:
                kept[name] = whole.detach().cpu().clone()
        return kept

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """See `ModelOptimiser.load_state_tensors`.

        Raises:
            KeyError: If it names an optimiser or a parameter that this model does not have.
        """
        steps = []
        for full_name, value in tensors.items():
            kind, slot, name = full_name.split("/", 2)
            if kind != "adamw":
                raise KeyError(kind)
            if name not in self._parameters:
                raise KeyError(name)
            if slot == "step":
                steps.append(float(value))
        if not steps:
            return
        # one step count for all: the moments of a parameter without a gradient so far are 0, whatever its count
        self._begin_state(max(steps))
        for full_name, value in tensors.items():
            _, slot, name = full_name.split("/", 2)
            if slot != "step":
                self._write(name, value, slot)

    def destroy(self) -> None:
        """Release the DeepSpeed engine."""
        self._engine.destroy()

    def _partitions(self) -> list[Tensor]:
        """Return this rank's float32 weights as the flat tensors that AdamW updates."""
        zero = self._zero
        of_rank = zero.fp32_partitioned_groups_flat if self._stage == 3 else zero.single_partition_of_fp32_groups
        return list(of_rank)

    def _num_steps(self) -> int:
        return int(self._adamw.state[self._partitions()[0]]["step"])

    def _begin_state(self, step: float) -> None:
        """Create AdamW's moments as zeros; by default they are created in the first step, too late to load a state."""
        for partition in self._partitions():
            moments = {slot: torch.zeros_like(partition) for slot in _MOMENTS}
            self._adamw.state[partition] = {"step": torch.tensor(step, device=partition.device), **moments}
        if self._stage < 3:
            self._zero._hp_optimizer_states_linked = False
            self._zero._lazy_init_hp_params_optimizer_state()

    def _write(self, name: str, value: Tensor, slot: str | None) -> None:
        """Write this rank's shard of an unsharded tensor: the float32 weight (`slot` None) or a moment.

        DeepSpeed's `safe_set_full_...` are not used: under ZeRO 3 they fail on sizes not divisible by the number of
        ranks.
        """
        parameter: Any = self._parameters[name]
        flat = value.detach().flatten().float()
        if self._stage == 3:
            target, _ = self._zero._get_fp32_opt_state_partition(parameter, False, slot)
            start = target.numel() * dist.get_rank()
            shard = flat[start : start + target.numel()]
            target.data[: shard.numel()].copy_(shard)
        elif parameter._hp_mapping is not None:
            mapping = parameter._hp_mapping
            where = mapping.lp_fragment_address
            mapping.get_hp_fragment(slot).data.copy_(flat[where.start : where.start + where.numel])


def _deepspeed_config(config: OptimiserConfig, sharding: Sharding, dtype: str) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": sharding.stage}
    if sharding.is_offloaded:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": Device.here().is_gpu}
    return {
        "train_micro_batch_size_per_gpu": 1,  # only for DeepSpeed's bookkeeping; losses are computed here
        "gradient_accumulation_steps": 1,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,  # torch's AdamW: DeepSpeed's own are compiled on first use
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": dtype == "bfloat16"},
        "gradient_clipping": config.max_gradient_norm or 0.0,
        "steps_per_print": 10**9,
    }
