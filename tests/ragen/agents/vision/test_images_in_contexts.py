"""Images in contexts: exact log-probs, features computed once, contexts that differ in their images alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from starpo.ragen.agents.policy.load import load_policy, load_tokenizer
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.engine import Request
from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from starpo.ragen.agents.rollout.torch.module_decoder import ModuleDecoder
from starpo.ragen.agents.rollout.torch.session import TorchSession
from starpo.ragen.agents.vision.image import Image, PlacedImage
from starpo.ragen.agents.vision.image_table import FIRST_IMAGE_ID, ImageTable
from starpo.ragen.agents.vision.image_tokens import IMAGE_TOKENS, MARK
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import EnvironmentFault, PolicyError, TemplateError
from starpo.ragen.core.seeding import token_uniforms
from starpo.ragen.envs import make
from starpo.ragen.envs.bandit.environment import BanditSettings
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.envs.sokoban.environment import SokobanSettings

SAMPLING = SamplingConfig(temperature=0.8, max_response_tokens=7)
SEEING = AgentConfig(prompt="state", observation="image")


def conversation(session, tokenizer, pictures, num_turns=3):
    """Play six sequences, the same text for all; pairs of them see the same pictures, in turn."""
    start, pad, end = tokenizer.convert_tokens_to_ids(list(IMAGE_TOKENS))
    contexts = {number: ([], ()) for number in range(6)}
    for turn in range(num_turns):
        requests = []
        for number, (ids, images) in contexts.items():
            prompt = [*ids, 30 + turn, start, *[pad] * 4, end, 31]
            shown = pictures[(number // 2 + turn) % 3]
            requests.append(
                Request(
                    f"s{number}",
                    prompt,
                    token_uniforms(number, turn, 7),
                    number,
                    images=(*images, PlacedImage(len(ids) + 2, 4, shown)),
                )
            )
        for number, (request, response) in enumerate(zip(requests, session.generate(requests), strict=True)):
            contexts[number] = [*request.prompt_ids, *response.token_ids], request.images
            yield request, response


def plain_logprobs(model, request, response):
    """Log-probs of a response by one forward pass on pixels: written without tables of images and their ids."""
    ids = torch.tensor([[*request.prompt_ids, *response.token_ids]])
    embedded = model.get_input_embeddings()(ids)
    for place in request.images:
        embedded[0, place.position : place.position + 4] = patches(model.model.vision, place.image.pixels)
    logits = model(inputs_embeds=embedded).logits[0, len(request.prompt_ids) - 1 : -1].double()
    logprobs = torch.log_softmax(logits / SAMPLING.temperature, -1)
    return logprobs[range(len(response.token_ids)), response.token_ids].numpy()


def patches(vision, pixels):
    """Embed the four patches of an image of 64 x 64 pixels."""
    embeddings = []
    for row in range(2):
        for column in range(2):
            tile = pixels[32 * row : 32 * row + 32, 32 * column : 32 * column + 32].astype(float)
            cells = [tile[y : y + 4, x : x + 4].mean((0, 1)) for y in range(0, 32, 4) for x in range(0, 32, 4)]
            colours = torch.tensor(np.concatenate(cells) / 127.5 - 1).float() / 192**0.5
            embeddings.append(vision.colours(colours) + vision.rows.weight[row] + vision.columns.weight[column])
    return torch.stack(embeddings)


@pytest.fixture(params=["fused", "module"])
def session(request, folder):
    engine = TorchEngine(device="cpu")
    engine.load(folder, "k")
    if request.param == "module":
        model, _ = load_policy(folder)
        decoder = ModuleDecoder(model, torch.device("cpu"), torch.float32)
        return TorchSession(decoder, SAMPLING, [31], lambda: engine._running("k"))
    return engine.session(SAMPLING, [31])


@pytest.mark.ci
def test_logprobs_equal_forward_with_pixels(session, tokenizer, model, pictures):
    pairs = list(conversation(session, tokenizer, pictures))
    with torch.inference_mode():
        for request, response in pairs:
            np.testing.assert_allclose(response.logprobs, plain_logprobs(model, request, response), atol=1e-4)
        blind = replace(pairs[0][0], images=tuple(replace(p, image=pictures[5]) for p in pairs[0][0].images))
        assert np.abs(plain_logprobs(model, blind, pairs[0][1]) - pairs[0][1].logprobs).max() > 0.01


def test_features_computed_once_per_image(session, tokenizer, pictures):
    computed = []
    features = session._decoder.image_features
    session._decoder.image_features = lambda images: computed.extend(images) or features(images)
    list(conversation(session, tokenizer, pictures))
    assert sorted(image.digest for image in computed) == sorted(image.digest for image in pictures[:3])


def test_images_have_ids_of_their_own(pictures):
    first, second, third = pictures[:3]
    table = ImageTable()
    prompt = table.put([5, 0, 0, 6, 0, 0], [PlacedImage(1, 2, first), PlacedImage(4, 2, second)])
    assert prompt == [5, FIRST_IMAGE_ID, FIRST_IMAGE_ID + 1, 6, FIRST_IMAGE_ID + 2, FIRST_IMAGE_ID + 3]
    assert table.put([0, 0], [PlacedImage(0, 2, third)]) == [FIRST_IMAGE_ID + 4, FIRST_IMAGE_ID + 5]
    assert table.put([0, 0], [PlacedImage(0, 2, first)]) == prompt[1:3]
    ids, images = table.local(np.array([[FIRST_IMAGE_ID + 5, 7], [FIRST_IMAGE_ID + 2, FIRST_IMAGE_ID + 3]]))
    assert (ids - FIRST_IMAGE_ID).tolist() == [[3, 7 - FIRST_IMAGE_ID], [0, 1]]
    assert images == (second, third)


@pytest.mark.parametrize("where", [{"context": "full"}, {"context": "window", "window_turns": 2}], ids=str)
@pytest.mark.parametrize("form", ["image", "both"])
def test_contexts_place_their_images(tokenizer, pictures, where, form):
    pad = tokenizer.convert_tokens_to_ids(IMAGE_TOKENS[1])
    lake = make(FrozenLakeSettings(size=2))
    lake.reset(seed=0)
    contexts = ContextBuilder(tokenizer, AgentConfig(prompt="state", observation=form, **where), 8)
    context = contexts.start(lake)
    for turn, picture in enumerate(pictures[:3]):
        text = f"a{MARK}b <|image_pad|>"  # neither a mark nor a token in an observation makes an image
        added = context.observe(text, actions_left=1, reward=0.0, had_invalid_action=False, image=picture)
        shown = [*pictures[: turn + 1]][-where.get("window_turns", 9) :]
        assert [place.image for place in context.images] == shown
        for ids, images in ((context.token_ids, context.images), (added.prompt_ids, added.images)):
            filled = [n for place in images for n in range(place.position, place.position + 4)]
            is_sampled = turn > 0 and where["context"] == "window"  # the response before, inside this prompt
            expected = [n for n, token in enumerate(ids) if token == pad]
            assert filled == expected if not is_sampled else set(filled) < set(expected)
        if where["context"] == "full":
            context.respond([31])
        else:
            context.respond([pad, 31])  # a sampled placeholder is a token like any other


def test_unseeable_images_are_refused(tokenizer, folder, pictures):
    blind = load_tokenizer(folder)
    blind.image_tokens = None
    with pytest.raises(PolicyError, match=r"sees none, .*: set policy\.type"):
        ContextBuilder(blind, SEEING, 8)
    contexts = ContextBuilder(load_tokenizer(folder), SEEING, 8)
    bandit = make(BanditSettings())
    bandit.reset(seed=0)
    with pytest.raises(EnvironmentFault, match="bandit draws no pictures"):
        contexts.look(bandit)
    with pytest.raises(PolicyError, match="100 x 64 pixels cannot be cut into patches of 32"):
        contexts.image_tokens.num_tokens(Image(np.zeros((100, 64, 3), np.uint8)))
    with pytest.raises(PolicyError, match="33 x 1 patches"):
        contexts.image_tokens.num_tokens(Image(np.zeros((33 * 32, 32, 3), np.uint8)))
    with pytest.raises(TemplateError, match="shows the observation 2 times"):
        contexts.add_message([], MARK + MARK, pictures[0])


@pytest.mark.ci
@pytest.mark.parametrize("settings", [FrozenLakeSettings(slip=0.0), SokobanSettings()], ids=lambda one: one.type)
def test_image_only_prompt_mentions_pictures(settings):
    tokenizer = make_tokenizer(patch_size=32)
    prompts = {}
    for shown in ("text", "image", "both"):
        contexts = ContextBuilder(tokenizer, AgentConfig(observation=shown), 8)
        environment = make(settings)
        observation, _ = environment.reset(seed=0)
        facts = {"actions_left": 9, "reward": 0.0, "had_invalid_action": False, "image": contexts.look(environment)}
        prompts[shown] = tokenizer.decode(contexts.start(environment).observe(observation, **facts).prompt_ids)
    assert "In the picture: " in prompts["image"]
    assert "Symbols" not in prompts["image"]
    assert all("Symbols" in prompts[shown] and "In the picture" not in prompts[shown] for shown in ("text", "both"))
