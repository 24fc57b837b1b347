"""What the stages of a run read from a store, beyond tables.

update           one update on stored datasets
stored_policy    a checkpoint's complete folder, and its tokenizer
training_states  the initial states of a checkpoint's training
metrics          stored metrics by name
"""
