"""Stages of stored runs, done for the first time or again. Begin with `work`.

work             a stage as a value: key, inputs, and how to carry it out
execution        carries out stages in this process, with retries after I/O failures
placement        where engines and learners run, kept loaded between stages
update           one update on stored datasets
derive           rebuilds a dropped checkpoint by the updates that made it, each verified by its digest
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
