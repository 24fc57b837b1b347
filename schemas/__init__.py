"""What stages exchange: Arrow schemas, their rules, and the manifest. Imports nothing else of ours, and no torch.

datasets   the Arrow schema of every dataset, with each column's meaning, and its version
rule       one rule: a sentence and a polars expression; the common ones
turn_rules the rules of `turns` and `siblings`
rules      the rules of every dataset, row by row and across rows
models     pandera models, made from columns and rules
validate   `validate(table, kind)`: all rules of a dataset, one clear error
examples   a small valid example of every dataset
manifest   what is written beside every artifact
digest     digest of logical data, independent of files, compression and batches
"""
