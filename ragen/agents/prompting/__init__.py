"""The agent: how observations become prompts of token ids, and responses become actions.

prompt      the text of a turn's user message: the seam
full_prompt, template_prompt   the built-in one, and one by a file
template    the append-only pieces of a tokenizer's chat template
context     a trajectory's context as token ids, grown by appending
forms       what has to stand inside the reasoning
parser      a response's reasoning and actions; never raises
transcript  what a stored prompt said, by role

    observation -> prompt -> context -> (engine) -> parser -> environment
"""
