"""SmolVLM, Qwen2.5-VL and Qwen3-VL through one seam: random weights, transformers' own classes and image processors."""

import shutil

import numpy as np
import pytest
import torch
from transformers import Qwen2VLImageProcessorPil

from starpo.ragen.agents.policy.load import load_policy, load_tokenizer
from starpo.ragen.agents.policy.save import save_policy
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.prompting.lengths import prompt_lengths
from starpo.ragen.agents.rollout.engine import Request
from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from starpo.ragen.agents.vision.embeddings import model_inputs
from starpo.ragen.agents.vision.image import Image, PlacedImage
from starpo.ragen.agents.vision.image_table import FIRST_IMAGE_ID, ImageTable
from starpo.ragen.agents.vision.positions import grid_positions
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import RolloutConfig, SamplingConfig
from starpo.ragen.context_fit import ContextFit
from starpo.ragen.core.errors import PolicyError
from starpo.ragen.core.seeding import token_uniforms
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.learning.examples import Batch, examples_of
from starpo.ragen.learning.learners.data.batches import micro_batches, rectangles
from starpo.ragen.learning.learners.models.scoring import ResponseScores, check_output_layer, row_tokens
from tests.visual_policies import FAMILIES, TEXT, forward, qwen3, save_random, smolvlm

SAMPLING = SamplingConfig(max_response_tokens=6)


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    save_random(request.param, folder)
    return str(folder)


@pytest.fixture(scope="module")
def shown():
    """Three images that are higher than wide."""
    rng = np.random.default_rng(0)
    return [Image(rng.integers(0, 256, (128, 96, 3), np.uint8)) for _ in range(3)]


@pytest.mark.ci
@pytest.mark.parametrize("num_in_sight", [3, 2], ids=["full", "window"])
def test_engine_learner_and_transformers_agree(folder, shown, num_in_sight):
    """Three turns; in a window of two, the context of the third turn does not continue that of the second."""
    model, tokenizer = load_policy(folder)
    reference, _ = load_policy(folder)  # transformers' pass leaves positions behind
    tokens = tokenizer.image_tokens
    engine = TorchEngine(device="cpu")
    engine.load(folder, "k")
    session = engine.session(SAMPLING, [31])
    table, prompts, responses, expected = ImageTable(), [], [], []
    spoken = {name: [] for name in "abc"}
    for turn in range(3):
        requests = []
        for number, (name, responses_before) in enumerate(spoken.items()):
            prompt, places = [], []
            for step in range(max(0, turn + 1 - num_in_sight), turn + 1):
                image = shown[(number // 2 + step) % 3]
                start = len(prompt) + 1 + len(tokens.before_ids)
                places.append(PlacedImage(start, tokens.num_tokens(image), image))
                prompt += [30, *tokens.ids(image), 32 + step, *(responses_before[step] if step < turn else ())]
            requests.append(Request(name, prompt, token_uniforms(number, turn, 6), number, images=tuple(places)))
        for request, response in zip(requests, session.generate(requests), strict=True):
            with torch.inference_mode():
                wanted = forward(reference, request, response)
            np.testing.assert_allclose(response.logprobs, wanted, atol=1e-4)
            spoken[request.sequence_id].append(response.token_ids)
            if turn == 2:
                prompts.append(table.put(request.prompt_ids, request.images))
                responses.append(response.token_ids)
                expected.append(wanted)

    check_output_layer(model)
    assert row_tokens(model) == TEXT["hidden_size"]
    batch = Batch(examples_of(prompts, responses), table)
    (rows,) = micro_batches(batch, np.arange(3), 10_000, row_tokens=10_000)
    assert rows.token_ids_ST.shape[1] < sum(len(example.token_ids) for example in batch.segments)
    assert len(rows.images) == 3
    (logprobs_M,) = ResponseScores(model)(rows, 1.0)
    scored = torch.zeros(batch.num_tokens)
    scored[rows.token_M] = logprobs_M.detach()
    torch.testing.assert_close(scored, torch.cat(expected).float(), atol=1e-4, rtol=0)


@pytest.mark.ci
def test_shared_prefixes_equal_plain_passes(folder, shown, monkeypatch):
    """Log-probs, and the gradient of a weighted sum of them, through the encoder of images too."""

    def norm(self, hidden):
        return self.weight * hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)

    model, tokenizer = load_policy(folder)
    model.double().requires_grad_(True)
    for kind in {type(module) for module in model.modules() if type(module).__name__.endswith("RMSNorm")}:
        monkeypatch.setattr(kind, "forward", norm)  # transformers computes it in float32
    tokens, table = tokenizer.image_tokens, ImageTable()
    prompts, responses = [], [[40, 41 + number] for number in range(4)]
    for number in range(4):
        ids, places = [], []
        for image in (shown[0], shown[1 + number % 2]):
            places.append(PlacedImage(len(ids) + 1 + len(tokens.before_ids), tokens.num_tokens(image), image))
            ids += [30, *tokens.ids(image), 32]
        prompts.append(table.put(ids, places))
    batch = Batch(examples_of(prompts, responses), table)
    weight_N = torch.arange(1.0, batch.num_tokens + 1)

    def learned(rows):
        model.zero_grad()
        logprobs_N = torch.zeros(batch.num_tokens, dtype=torch.float64)
        for one in rows:
            (logprobs_M,) = ResponseScores(model)(one, 1.0)
            (logprobs_M * weight_N[one.token_M]).sum().backward()
            logprobs_N[one.token_M] = logprobs_M.detach()
        return logprobs_N, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    shared = micro_batches(batch, np.arange(4), 10_000, row_tokens=10_000)
    assert sum(one.token_ids_ST.numel() for one in shared) < sum(len(one.token_ids) for one in batch.segments)
    loss, gradients = learned(shared)
    expected, plain = learned(rectangles(batch, range(4), 2))
    torch.testing.assert_close(loss, expected, atol=1e-10, rtol=1e-9)
    assert gradients.keys() == plain.keys()
    assert any("vis" in name and gradient.abs().max() > 0 for name, gradient in plain.items())
    for name, gradient in plain.items():
        torch.testing.assert_close(gradients[name], gradient, atol=1e-8, rtol=1e-6, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.ci
def test_tokenizer_without_image_tokens_refused(tmp_path):
    model, processor = smolvlm(make_tokenizer())
    model.base_model.image_processor = processor
    save_policy(model, make_tokenizer(), tmp_path)
    with pytest.raises(PolicyError, match="has no tokens <fake_token_around_image>"):
        load_tokenizer(tmp_path)


def test_folder_without_processor_is_refused(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "policy")
    (tmp_path / "policy" / "preprocessor_config.json").unlink()
    with pytest.raises(PolicyError, match=r"the image processor in .* cannot be loaded"):
        load_tokenizer(tmp_path / "policy")


@pytest.mark.ci
def test_oversized_processor_refused_with_numbers(tmp_path):
    """The size that Qwen3-VL is shipped with enlarges a small board sixteenfold."""
    tokenizer = make_tokenizer()
    model, _ = qwen3(tokenizer)
    size = {"shortest_edge": 65_536, "longest_edge": 1 << 20}
    model.base_model.image_processor = Qwen2VLImageProcessorPil(size=size, patch_size=16)
    save_policy(model, tokenizer, tmp_path)
    agent = AgentConfig(prompt="state", observation="image")
    contexts = ContextBuilder(load_tokenizer(tmp_path), agent, 8)
    rollout = RolloutConfig(max_context_tokens=64, max_response_tokens=8)
    lengths = prompt_lengths(FrozenLakeSettings(size=2), contexts)
    misfit = ContextFit("environment", "frozen_lake", lengths, agent, rollout, None).misfit
    assert "an image of 64 x 64 pixels takes 64, as its processor resizes it to 256 x 256" in misfit
    assert "do not fit into rollout.max_context_tokens = 64" in misfit
    with pytest.raises(PolicyError, match=r"an image of 32 x 32000 pixels cannot be resized: .*aspect ratio"):
        contexts.image_tokens.num_tokens(Image(np.zeros((32, 32_000, 3), np.uint8)))


def test_positions_in_two_dimensions():
    first = FIRST_IMAGE_ID
    image, other = [first, first + 1, first + 2], [first + 3]
    plain = torch.tensor([[5, *image, 6, *other, 7]])
    time, row, column = grid_positions(plain, [(1, 3), (1, 1)])[:, 0].tolist()
    assert time == [0, 1, 1, 1, 4, 5, 6]
    assert row == [0, 1, 1, 1, 4, 5, 6]
    assert column == [0, 1, 2, 3, 4, 5, 6]
    # two branches after a shared image of 3 x 1: the second continues where the image ended, not the first branch
    shared = torch.tensor([[5, *image, 6, 7, 8]])
    index, ends = torch.tensor([[0, 1, 2, 3, 4, 4, 5]]), torch.tensor([[7, 7, 7, 7, 5, 7, 7]])
    time, row, column = grid_positions(shared, [(3, 1)], index, ends)[:, 0].tolist()
    assert time == [0, 1, 1, 1, 4, 4, 5]
    assert row == [0, 1, 2, 3, 4, 4, 5]
    assert column == [0, 1, 1, 1, 4, 4, 5]
    # a 2 x 2 image in the first branch alone moves nothing in the second
    square = [*image, first + 3]
    branches = torch.tensor([[5, *square, 6, 7]])
    index, ends = torch.tensor([[0, 1, 2, 3, 4, 5, 1]]), torch.tensor([[7, 6, 6, 6, 6, 6, 7]])
    assert grid_positions(branches, [(2, 2)], index, ends)[0, 0].tolist() == [0, 1, 1, 1, 1, 3, 1]


@pytest.mark.ci
def test_sampled_placeholder_is_ordinary_token(folder, shown):
    model, tokenizer = load_policy(folder)
    tokens, table = tokenizer.image_tokens, ImageTable()
    prompt = [30, *tokens.ids(shown[0])]
    place = PlacedImage(1 + len(tokens.before_ids), tokens.num_tokens(shown[0]), shown[0])
    ids = torch.tensor([[*table.put(prompt, [place]), tokens.image_id, 31]])
    with torch.inference_mode():
        read = model.base_model(**model_inputs(model.base_model, ids, table.images)).last_hidden_state[0]
        # another token whose embedding is the placeholder's, but for rounding
        weight = model.get_input_embeddings().weight
        weight[33] = weight[tokens.image_id] * (1 + 1e-6)
        replaced = ids.masked_fill(ids == tokens.image_id, 33)
        expected = model.base_model(**model_inputs(model.base_model, replaced, table.images)).last_hidden_state[0]
    torch.testing.assert_close(read, expected, atol=1e-4, rtol=0)
