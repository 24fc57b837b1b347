"""Checkpoints that need not be kept, because they can be derived: an update is a function of stored inputs.

    nearest kept checkpoint -> stored rollouts, updated on again -> the checkpoint, proved by its digest

retention      which checkpoints a run keeps, and dropping those that nobody needs
complete       a folder with all that a policy needs: adapters, and the weights of their base
recipe         from which kept checkpoint, by which updates, a checkpoint can be made
stored_update  one update on stored datasets, from its manifest
derive         carrying a recipe out, and proving every step
survey         the checkpoints of a run: kept, dropped, derivable
tokenizer      the tokenizer of a run, from whichever checkpoint is there
"""
