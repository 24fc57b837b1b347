"""Policies: where the first checkpoint of a run comes from.

    tokenizer       `make_tokenizer`: the small byte-level BPE of the embedded policy, made locally
    tiny            `make_model`: the embedded policy's architecture with seeded random weights
    adapter         LoRA adapters beside a policy's weights, and weights with them merged in
    complete        a checkpoint's folder with all that it needs: adapters, and their base's weights
    stored_tokenizer  a run's tokenizer, from whichever of its checkpoints is there
    load            `load_policy`, `load_tokenizer`, `resolve_policy`: any Hugging Face causal LM, by folder or by name

Nothing here is imported before it is used: every module needs torch or transformers.
"""
