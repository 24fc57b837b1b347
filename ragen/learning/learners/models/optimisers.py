"""Optimisers: AdamW, Muon in fp32, their learning rate schedule, and their state as named tensors.

OptimiserConfig, iteration -> learning_rate_factor
model, OptimiserConfig -> ModelOptimiser -> step; state_tensors -> checkpoint
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from starpo.ragen.config.update import OptimiserConfig

_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # K. Jordan's quintic: singular values go to about 1 in five steps


class Muon(torch.optim.Optimizer):
    """Momentum orthogonalised by Newton-Schulz iteration in the parameters' own precision (K. Jordan, "Muon", 2024).

        buffer = momentum * buffer + (1 - momentum) * gradient
        update = orthogonalise((1 - momentum) * gradient + momentum * buffer)
        weight = weight - lr * sqrt(max(1, rows / columns)) * update

    Matrices of the same shape, up to transposition, are orthogonalised as one batch. torch's own Muon works in bf16,
    which is several times slower than fp32 on CPUs without bf16 units.
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float = 0.02, momentum: float = 0.9, num_iterations: int = 5
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "num_iterations": num_iterations})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        assert closure is None, "Muon takes no closure"
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = {}
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                assert parameter.ndim == 2, f"Muon updates matrices, not tensors of shape {tuple(parameter.shape)}"
                state = self.state[parameter]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(parameter)
                buffer = state["momentum_buffer"]
                buffer.lerp_(parameter.grad, 1 - group["momentum"])
                update = parameter.grad.lerp(buffer, group["momentum"])
                wide = update.T if update.shape[0] > update.shape[1] else update
                by_shape.setdefault(tuple(wide.shape), []).append((parameter, wide))
            for members in by_shape.values():
                updates = orthogonalise(torch.stack([wide for _, wide in members]), group["num_iterations"])
                for (parameter, _), update in zip(members, updates, strict=True):
                    rows, columns = parameter.shape
                    scale = max(1.0, rows / columns) ** 0.5
                    parameter.add_(update.T if rows > columns else update, alpha=-group["lr"] * scale)


def orthogonalise(matrices: Tensor, num_iterations: int = 5) -> Tensor:
    """Push the singular values of each matrix to about 1 (within 0.7 and 1.2), keeping its singular vectors.

    Args:
        matrices: [batch, rows, columns] with rows <= columns.
        num_iterations: Newton-Schulz steps.

    Returns:
        Same shape. A matrix of zeros stays zero.
    """
    a, b, c = _NEWTON_SCHULZ
    matrices = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(num_iterations):
        gram = matrices @ matrices.transpose(1, 2)
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        matrices = torch.baddbmm(matrices, polynomial, matrices, beta=a)
    return matrices


def learning_rate_factor(config: OptimiserConfig, iteration: int, num_iterations: int) -> float:
    """Return the share of the peak learning rate at an iteration, 0 to 1; the same for both optimisers of a model.

    It rises linearly over `warmup_iterations`, reaching 1 in the last of them. Then it stays at 1, or falls linearly to
    `final_fraction` at iteration `num_iterations - 1` and stays there.
    """
    if iteration < config.warmup_iterations:
        return (iteration + 1) / config.warmup_iterations
    if config.decay == "constant":
        return 1.0
    length = num_iterations - 1 - config.warmup_iterations
    progress = min(1.0, (iteration - config.warmup_iterations) / length) if length > 0 else 0.0
    return 1.0 - (1.0 - config.final_fraction) * progress


class ModelOptimiser:
    """Optimisers of one model: AdamW for all parameters, or Muon for its weight matrices and AdamW for the rest."""

    def __init__(self, model: nn.Module, config: OptimiserConfig) -> None:
        self.config = config
        self._names: dict[Tensor, str] = {p: name for name, p in model.named_parameters() if p.requires_grad}
        matrices = _weight_matrices(model) & set(self._names) if config.type == "muon" else set()
        others = [parameter for parameter in self._names if parameter not in matrices]
        self._optimisers: dict[str, tuple[torch.optim.Optimizer, float]] = {}
        if matrices:
            ordered = [parameter for parameter in self._names if parameter in matrices]
            muon = Muon(ordered, lr=config.matrix_learning_rate, momentum=config.momentum)
            self._optimisers["muon"] = (muon, config.matrix_learning_rate)
        if others:
            adamw = torch.optim.AdamW(
                others,
                lr=config.learning_rate,
                betas=(config.beta1, config.beta2),
                weight_decay=config.weight_decay,
                fused=True,
            )
            self._optimisers["adamw"] = (adamw, config.learning_rate)

    def gradients(self, loss: Tensor) -> Sequence[Tensor | None]:
        """Compute the gradients of a scalar for all parameters, in order. Has no side effects, so it is thread-safe."""
        device = loss.device.type
        is_half = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.float16
        with torch.autocast(device, enabled=False):  # backward runs in the precision chosen by forward
            if is_half:
                from starpo.ragen.learning.learners.models.loss_scaling import scaled_gradients

                return scaled_gradients(loss, list(self._names))
            return torch.autograd.grad(loss, list(self._names), allow_unused=True)

    def add(self, gradients: Sequence[Tensor | None]) -> None:
        """Add to the accumulated gradients of the next step."""
        for parameter, gradient in zip(self._names, gradients, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)

    def flat_gradient(self) -> Tensor:
        """Return the accumulated gradients, all parameters concatenated, on the CPU; 0 where there is none. float32"""
        whole = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._names]
        return torch.cat([gradient.detach().flatten().float().cpu() for gradient in whole])

    def zero_grad(self) -> None:
        """Clear the gradients."""
        for parameter in self._names:
            parameter.grad = None

    def step(self, factor: float) -> float:
        """Clip the gradient and take one step.

        Args:
            factor: Share of the peak learning rates (`learning_rate_factor`).

        Returns:
            The gradient norm before clipping. If it is not finite, the step is skipped.
        """
        limit = self.config.max_gradient_norm
        gradients = [parameter.grad for parameter in self._names if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if not torch.isfinite(norm):
            return float(norm)
        if limit is not None:
            torch.nn.utils.clip_grads_with_norm_(list(self._names), limit, norm)
        for optimiser, peak in self._optimisers.values():
            for group in optimiser.param_groups:
                group["lr"] = peak * factor
            optimiser.step()
        return float(norm)

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the state by name: `<optimiser>/<slot>/<parameter>`, such as `adamw/exp_avg/embed_tokens.weight`."""
        return {
            f"{kind}/{slot}/{self._names[parameter]}": value
            for kind, (optimiser, _) in self._optimisers.items()
            for parameter, slots in optimiser.state.items()
            for slot, value in slots.items()
        }

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Load a state from `state_tensors`.

        Raises:
            KeyError: If it names an optimiser or a parameter that this model's settings do not have.
        """
        parameters = {name: parameter for parameter, name in self._names.items()}
        for full_name, value in tensors.items():
            kind, slot, name = full_name.split("/", 2)
            optimiser, _ = self._optimisers[kind]
            parameter = parameters[name]
            # AdamW's step count is a scalar tensor, kept on the same device as the moments
            optimiser.state[parameter][slot] = value.to(parameter.device, copy=True)


def _weight_matrices(model: nn.Module) -> set[Tensor]:
    """Return the weights of hidden-to-hidden linear layers: no embeddings, no output layers, no scalar heads."""
    embeddings = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
    output = model.get_output_embeddings() if isinstance(model, PreTrainedModel) else None
    excluded = embeddings | ({output.weight} if output is not None else set())
    linear = {
        module.weight for module in model.modules() if isinstance(module, nn.Linear) and min(module.weight.shape) > 1
    }
    return linear - excluded
