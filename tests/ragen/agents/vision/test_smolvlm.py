"""SmolVLM through the same seam: random weights, transformers' own classes and image processor."""

import numpy as np
import pytest
import torch
from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration, SmolVLMImageProcessorPil

from starpo.ragen.agents.policy.load import load_policy, load_tokenizer
from starpo.ragen.agents.policy.save import save_policy
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.rollout.engine import Request
from starpo.ragen.agents.rollout.torch_engine import TorchEngine
from starpo.ragen.agents.vision.image import PlacedImage
from starpo.ragen.agents.vision.image_table import ImageTable
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import PolicyError
from starpo.ragen.core.seeding import token_uniforms
from starpo.ragen.learning.examples import Batch, examples_of
from starpo.ragen.learning.learners.batches import micro_batches
from starpo.ragen.learning.learners.scoring import ResponseScores, check_output_layer, row_tokens

AROUND = ["<fake_token_around_image>", "<global-img>", "<image>"]
TEXT = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
}  # fmt: skip
VISION = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
SAMPLING = SamplingConfig(max_response_tokens=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A SmolVLM that makes 16 tokens of an image of 64 x 64 pixels; shipped ones split larger images."""
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", *AROUND]})
    config = SmolVLMConfig(
        text_config=TEXT | {"vocab_size": len(tokenizer)},
        vision_config=VISION | {"image_size": 64, "patch_size": 8},
        scale_factor=2,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = SmolVLMForConditionalGeneration(config).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
    model.base_model.image_processor = SmolVLMImageProcessorPil(size={"longest_edge": 256}, do_image_splitting=True)
    folder = tmp_path_factory.mktemp("smolvlm")
    save_policy(model, tokenizer, folder)
    return str(folder)


def forward(model, tokenizer, request, response):
    """Log-probs of a response by transformers' own forward pass on its processor's pixels."""
    processor = SmolVLMImageProcessorPil(
        do_image_splitting=False, size={"longest_edge": 64}, max_image_size={"longest_edge": 64}
    )
    shown = processor([[place.image.pixels for place in request.images]], return_tensors="pt")
    ids = torch.tensor([[*request.prompt_ids, *response.token_ids]])
    logits = model(input_ids=ids, **shown).logits[0, len(request.prompt_ids) - 1 : -1].double()
    return torch.log_softmax(logits, -1)[range(len(response.token_ids)), response.token_ids]


def test_engine_learner_and_transformers_agree(folder, pictures):
    model, tokenizer = load_policy(folder)
    tokens = tokenizer.image_tokens
    engine = TorchEngine(device="cpu")
    engine.load(folder, "k")
    session = engine.session(SAMPLING, [31])
    table, prompts, responses, expected = ImageTable(), [], [], []
    contexts = {name: ([], ()) for name in "abc"}
    for turn in range(2):
        asked = []
        for number, (name, (ids, images)) in enumerate(contexts.items()):
            image = pictures[(number // 2 + turn) % 3]
            place = PlacedImage(len(ids) + 3, 16, image)
            prompt = [*ids, 30, *tokens.ids(image), 32 + turn]
            uniforms = token_uniforms(number, turn, 6)
            asked.append(Request(name, prompt, uniforms, number, images=(*images, place)))
        for request, response in zip(asked, session.generate(asked), strict=True):
            with torch.inference_mode():
                wanted = forward(model, tokenizer, request, response)
            np.testing.assert_allclose(response.logprobs, wanted, atol=1e-4)
            contexts[request.sequence_id] = [*request.prompt_ids, *response.token_ids], request.images
            if turn == 1:
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


def test_a_tokenizer_without_its_tokens_is_refused(folder, tmp_path):
    model, _ = load_policy(folder)
    save_policy(model, make_tokenizer(), tmp_path)
    with pytest.raises(PolicyError, match="has no tokens <fake_token_around_image>"):
        load_tokenizer(tmp_path)
