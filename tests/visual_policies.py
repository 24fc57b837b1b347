"""Random policies of the families that see, in sizes that vLLM's attention on the CPU takes: heads of 32."""

import torch
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
    SmolVLMImageProcessorPil,
)

from starpo.ragen.agents.policy.save import save_policy
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.vision.image_tokens import IMAGE_TOKENS

AROUND = ["<fake_token_around_image>", "<global-img>", "<image>"]
TEXT = {
    "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 512,
}  # fmt: skip
ROPE = {"rope_type": "default", "mrope_section": [4, 6, 6], "rope_theta": 10_000.0}
VISION = {"hidden_size": 64, "intermediate_size": 96}


def smolvlm(tokenizer):
    """16 tokens of an image, whatever its size."""
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", *AROUND]})
    vision = {"num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 64, "patch_size": 8}
    config = SmolVLMConfig(
        text_config=TEXT | {"model_type": "llama", "vocab_size": len(tokenizer)},
        vision_config=VISION | vision,
        scale_factor=2,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        pad_token_id=tokenizer.pad_token_id,
    )
    processor = SmolVLMImageProcessorPil(size={"longest_edge": 256}, do_image_splitting=True)
    return SmolVLMForConditionalGeneration(config), processor


def image_ids(tokenizer):
    """Add Qwen's special tokens; return the ids of start, placeholder and end of an image, and of a video's."""
    tokens = [*IMAGE_TOKENS, "<|video_pad|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", *tokens]})
    return tokenizer.convert_tokens_to_ids(tokens)


def qwen(tokenizer):
    """4 x 3 tokens of an image of 128 x 96 pixels."""
    start, pad, end, video = image_ids(tokenizer)
    vision = {"num_heads": 2, "depth": 2, "fullatt_block_indexes": [1], "out_hidden_size": 64, "window_size": 112}
    config = Qwen2_5_VLConfig(
        text_config=TEXT | {"vocab_size": len(tokenizer), "rope_parameters": ROPE},
        vision_config=VISION | vision | {"patch_size": 14, "spatial_merge_size": 2},
        image_token_id=pad,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )
    return Qwen2_5_VLForConditionalGeneration(config), Qwen2VLImageProcessorPil()


def qwen3(tokenizer):
    """4 x 3 tokens of an image of 128 x 96 pixels; two layers of the decoder add features of the encoder's."""
    start, pad, end, video = image_ids(tokenizer)
    vision = {"num_heads": 2, "depth": 3, "deepstack_visual_indexes": [0, 1], "out_hidden_size": 64}
    config = Qwen3VLConfig(
        text_config=TEXT
        | {"vocab_size": len(tokenizer), "head_dim": 32, "rope_parameters": ROPE | {"mrope_interleaved": True}},
        vision_config=VISION | vision | {"patch_size": 16, "spatial_merge_size": 2, "num_position_embeddings": 64},
        image_token_id=pad,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )
    size = {"shortest_edge": 4096, "longest_edge": 65_536}
    return Qwen3VLForConditionalGeneration(config), Qwen2VLImageProcessorPil(size=size, patch_size=16)


FAMILIES = {"smolvlm": smolvlm, "qwen2_5_vl": qwen, "qwen3_vl": qwen3}


def save_random(family, folder, seed=0):
    """Save a policy of a family with random weights."""
    tokenizer = make_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model, processor = FAMILIES[family](tokenizer)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
    model.base_model.image_processor = processor
    save_policy(model.eval(), tokenizer, folder)


def forward(model, request, response):
    """Log-probs of a response by transformers' own forward pass on its processor's pixels."""
    ids = torch.tensor([[*request.prompt_ids, *response.token_ids]])
    pixels = [place.image.pixels for place in request.images]
    if model.config.model_type == "smolvlm":
        size = {"longest_edge": 64}
        processor = SmolVLMImageProcessorPil(do_image_splitting=False, size=size, max_image_size=size)
        inputs = processor([pixels], return_tensors="pt")
    else:
        is_image = torch.zeros_like(ids, dtype=torch.int32)
        for place in request.images:
            is_image[0, place.position : place.position + place.num_tokens] = 1
        inputs = dict(model.base_model.image_processor(pixels, return_tensors="pt"), mm_token_type_ids=is_image)
    logits = model(input_ids=ids, **inputs).logits[0, len(request.prompt_ids) - 1 : -1].double()
    return torch.log_softmax(logits, -1)[range(len(response.token_ids)), response.token_ids]
