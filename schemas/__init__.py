"""Data contracts between stages: Arrow schemas, their rules, and the manifest. Imports no other package of ours, no
torch.

datasets   the Arrow schema of every dataset, with each column's meaning, and its version
checks     the checks of every dataset's columns
rule       a single rule: a sentence and a polars expression; common rules
turn_rules the rules of `turns` and `siblings`
image_rules the rules of `images` and `turn_images`
rules      the rules of every dataset, row by row and across rows
models     pandera models, built from columns, checks and rules
validate   `validate(table, kind)`: all rules of a dataset, one readable error; violation: that error
imported   what is known of the source of imported turns
texts      the messages of turns whose tokens are not known
manifest   the manifest stored with every artifact
digest     digest of logical data, independent of files, compression and batches
"""
