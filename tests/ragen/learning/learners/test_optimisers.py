"""Optimisers: Muon by its definition, schedules by hand, state by name."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.config.update import OptimiserConfig
from starpo.ragen.learning.learners.models.optimisers import ModelOptimiser, Muon, learning_rate_factor, orthogonalise


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_orthogonalise_keeps_vectors_flattens_spectrum():
    matrices = torch.randn(3, 8, 20, generator=generator())
    result = orthogonalise(matrices)
    u, s, v = torch.linalg.svd(matrices, full_matrices=False)
    rotated = u.transpose(1, 2) @ result @ v.transpose(1, 2)
    diagonal = rotated.diagonal(dim1=1, dim2=2)
    assert ((diagonal > 0.6) & (diagonal < 1.3)).all()
    torch.testing.assert_close(rotated, torch.diag_embed(diagonal), atol=1e-4, rtol=0)
    assert (s.max() / s.min()) > 2  # they differed before


def test_orthogonalise_leaves_zeros():
    assert not orthogonalise(torch.zeros(1, 3, 5)).any()


@pytest.mark.parametrize("shape", [(4, 12), (12, 4), (6, 6)])
def test_muon_step_by_its_definition(shape):
    start, gradient = torch.randn(2, *shape, generator=generator())
    parameter = nn.Parameter(start.clone())
    parameter.grad = gradient.clone()
    Muon([parameter], lr=0.1, momentum=0.9).step()
    # first step: buffer = 0.1 g, update = 0.1 g + 0.9 * 0.1 g = 0.19 g; only the direction counts
    update = 0.19 * gradient
    wide = update.T if shape[0] > shape[1] else update
    direction = orthogonalise(wide[None])[0]
    direction = direction.T if shape[0] > shape[1] else direction
    expected = start - 0.1 * max(1, shape[0] / shape[1]) ** 0.5 * direction
    torch.testing.assert_close(parameter.detach(), expected)


def test_muon_batched_equals_single_matrices():
    starts, gradients = torch.randn(2, 3, 4, 6, generator=generator())

    def stepped(group):
        parameters = [nn.Parameter(starts[i].clone()) for i in group]
        for parameter, i in zip(parameters, group, strict=True):
            parameter.grad = gradients[i].clone()
        Muon(parameters, lr=0.1).step()
        return [p.detach() for p in parameters]

    alone = [stepped([i])[0] for i in range(3)]
    torch.testing.assert_close(stepped([0, 1, 2]), alone)


def test_schedule_by_hand():
    config = OptimiserConfig(warmup_iterations=2, decay="linear", final_fraction=0.1)
    # 1/2, 2/2, then from 1 at iteration 2 down to 0.1 at iteration 5, in steps of 0.3
    factors = [learning_rate_factor(config, i, 6) for i in range(8)]
    assert factors == pytest.approx([0.5, 1.0, 1.0, 0.7, 0.4, 0.1, 0.1, 0.1])
    assert [learning_rate_factor(OptimiserConfig(), i, 6) for i in range(3)] == [1, 1, 1]


@given(st.integers(0, 10), st.integers(1, 30), st.floats(0, 1), st.integers(0, 40))
def test_schedule_stays_between_0_and_1(warmup, num_iterations, final, iteration):
    config = OptimiserConfig(warmup_iterations=warmup, decay="linear", final_fraction=final)
    assert 0 <= learning_rate_factor(config, iteration, num_iterations) <= 1


def test_muon_takes_only_weight_matrices(policy_folder):
    model, _ = load_policy(policy_folder)
    optimiser = ModelOptimiser(model, OptimiserConfig(type="muon", learning_rate=1e-3))
    model(input_ids=torch.arange(5)[None]).logits.square().mean().backward()
    optimiser.step(1.0)
    kinds: dict[str, set[str]] = {"muon": set(), "adamw": set()}
    for name in optimiser.state_tensors():
        kind, _, parameter = name.split("/", 2)
        kinds[kind].add(parameter)
    assert kinds["muon"] | kinds["adamw"] == dict(model.named_parameters()).keys()
    assert not kinds["muon"] & kinds["adamw"]
    assert all(name.endswith("_proj.weight") for name in kinds["muon"])
    assert "model.embed_tokens.weight" in kinds["adamw"]  # tied to the output layer


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_restored_optimiser_continues_bit_exact(kind):
    def model_and_optimiser():
        model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 1))
        with torch.no_grad():
            for index, parameter in enumerate(model.parameters()):
                parameter.copy_(torch.randn(parameter.shape, generator=generator(index)))
        return model, ModelOptimiser(model, OptimiserConfig(type=kind, learning_rate=0.01))

    def step(model, optimiser, seed):
        model(torch.randn(5, 4, generator=generator(seed))).square().sum().backward()
        optimiser.step(0.5)
        optimiser.zero_grad()

    model, optimiser = model_and_optimiser()
    step(model, optimiser, 10)
    by_muon = [name for name in optimiser.state_tensors() if name.startswith("muon/")]
    assert by_muon == (["muon/momentum_buffer/0.weight"] if kind == "muon" else [])  # not the scalar head
    copy, restored = model_and_optimiser()
    copy.load_state_dict(model.state_dict())
    restored.load_state_tensors({name: tensor.clone() for name, tensor in optimiser.state_tensors().items()})
    step(model, optimiser, 11)
    step(copy, restored, 11)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), copy.parameters(), strict=True))


def test_step_clips_gradient_and_returns_norm():
    layer = nn.Linear(1, 1, bias=False)
    layer.weight.grad = torch.tensor([[30.0]])
    before = layer.weight.item()
    optimiser = ModelOptimiser(layer, OptimiserConfig(max_gradient_norm=2.0, learning_rate=0.1))
    assert optimiser.step(0.25) == pytest.approx(30)
    assert layer.weight.grad.item() == pytest.approx(2.0, rel=1e-4)
    assert before - layer.weight.item() == pytest.approx(0.025, rel=1e-4)  # AdamW's first step: a quarter of the rate


def test_nonfinite_gradient_changes_nothing():
    layer = nn.Linear(2, 1)
    before = layer.weight.detach().clone()
    layer.weight.grad = torch.tensor([[float("nan"), 1.0]])
    optimiser = ModelOptimiser(layer, OptimiserConfig())
    assert not torch.isfinite(torch.tensor(optimiser.step(1.0)))
    assert torch.equal(layer.weight, before)
    assert not optimiser.state_tensors()


@pytest.mark.parametrize("size", [1e-8, 1e-3, 3e2], ids=["would vanish", "ordinary", "overflows at the first scale"])
def test_float16_gradients_are_float32_s(size):
    """By layers, so that gradients between them are in float16, whose smallest number is 6e-8 and largest 65,504."""
    first, second = (nn.Linear(16, 16, bias=False) for _ in range(2))
    model = nn.Sequential(first, second)
    for layer in model:
        nn.init.normal_(layer.weight, std=0.25, generator=generator())
    optimiser, x = ModelOptimiser(model, OptimiserConfig()), torch.randn(8, 16, generator=generator(1))
    exact = optimiser.gradients(model(x).float().mean() * size)
    with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
        half = optimiser.gradients(model(x).float().mean() * size)
    for one, other in zip(half, exact, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.005 * float(other.abs().max()))


def test_float16_gradient_may_be_infinite():
    """At every scale; the caller names it."""
    model = nn.Linear(4, 1, bias=False)
    with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
        [gradient] = ModelOptimiser(model, OptimiserConfig()).gradients(model(torch.ones(1, 4)).sum() * torch.inf)
    assert not torch.isfinite(gradient).any()
