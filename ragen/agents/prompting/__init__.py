"""The agent: how observations become prompts of token ids, and responses become actions.

prompt      the text of a turn's user message: the extension point
full_prompt, template_prompt   the built-in prompt, and prompts from a template file
rendering   a chat template's renderings, in a process with limits of its own
probes      what a chat template writes around messages
shown       how it shows earlier responses
encoding    token ids of a conversation's text
chat_template  which template is used
template    the append-only pieces of a tokenizer's chat template
context     a trajectory's context as token ids, grown by appending
earlier     earlier responses as later prompts repeat them
lengths     tokens of prompts, counted before a run
forms       required structure of the reasoning
parser      a response's reasoning and actions; never raises
transcript  a stored prompt as text, by role

    observation -> prompt -> context -> (engine) -> parser -> environment
"""
