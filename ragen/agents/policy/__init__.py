"""Policies: the source of a run's first checkpoint.

    tokenizer       `make_tokenizer`: the small byte-level BPE of the embedded policy, built locally
    tiny            `make_model`: the embedded policy's architecture with seeded random weights
    adapter         LoRA adapters beside a policy's weights
    merged_weights  `merge`: such an adapter merged into all weights
    complete        a checkpoint folder that is complete: adapters together with their base's weights
    links           symbolic links to a policy's files
    initial_states  the initial states of a policy's training, as its folder records them
    agent_settings  the prompts that an exported policy was trained on, as its folder records them
    token_texts     the part of a recorded text that each token spells
    source          `resolve_policy`: from a hub's name, folder, GGUF file or package to one checked folder
    gguf            a folder in Hugging Face's layout made from a GGUF file
    folder          `check_folder`: what a folder says, so that all readers understand it alike
    save            `save_policy`: config, weights and tokenizer into a folder
    load            `load_policy`, `load_tokenizer`: any Hugging Face causal LM, from a folder

Import these modules only where they are used: most of them need torch or transformers.
"""
