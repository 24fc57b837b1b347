"""Stages of stored runs, done for the first time or again. Begin with `work`.

work             a stage as a value: key, inputs, and how to carry it out
execution        carries out stages in this process, with retries after I/O failures
placement        where a run plays and learns; kept loaded between stages, closed at its end
players          its engines, worker processes and actors
continuations    rounds of continuations from the states before stored turns
creditable       whether the credit of turns can be measured so, and who played them
kept_shards      finished shards of work in progress, which an interruption does not lose
loaded_learner   its learner, at any checkpoint, kept or derived
update           one update on stored datasets
derive           an update repeated to rebuild a dropped checkpoint, verified by its digest
replay           reward, filter and update of stored rollouts with other settings
verify           whether a stage reproduces what is stored
forks            which runs of a store branch off from which others
stored_policy    a checkpoint's complete folder, and its tokenizer
newest_policies  policies that updates have just made, for the players
stored_images    images of stored turns, for whoever computes with them
training_states  the initial states of a checkpoint's training
metrics          stored metrics by name; counting: how many updates a run has made

The stages themselves, and the loops over them, are in `tasks`: nothing here depends on which stages there are.
"""
