"""Observations as images, from the environment's pixels to embeddings in a context.

    image         `Image`: pixels and their digest, as an environment draws them
    png           the one form in which images are stored
    image_tokens  `ImageTokens`: the placeholder tokens of an image in a prompt
    image_table   `ImageTable`: in memory, every image of a batch has token ids of its own
    family        what differs between models that see: their image tokens, how they prepare images and embed them
    families      the families by type of model: tiny_vision, smolvlm, qwen_vl
    embeddings    text tokens and images to input embeddings; the one place that asks a model for features
    positions     rows and columns of an image's tokens, for models that place them so
    tiny_vision   the embedded visual policy: patches, embedded linearly, in the context of a small decoder

    environment -> Image -> ImageTokens -> prompt ids, with placeholders -> stored
                     '--> ImageTable -> prompt ids, each image with ids of its own -> engine, learner -> embeddings

Two images have the same placeholders, so placeholders alone do not tell contexts apart. With ids of their own they do,
and whatever compares ids (prefix trees, caches, shared prefixes, micro-batches) works on images unchanged.
"""
