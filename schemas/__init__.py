"""What stages exchange: Arrow schemas, their rules, and the manifest. Imports nothing else of ours, and no torch.

datasets   the Arrow schema of every dataset, with each column's meaning, and its version
rules      pandera models and cross-row rules of every dataset
validate   `validate(table, kind)`: all rules of a dataset, one clear error
manifest   what is written beside every artifact
digest     digest of logical data, independent of files, compression and batches
"""
