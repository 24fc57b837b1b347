"""What each command prints with `--json`: the types of its documents, from which `starpo schema` makes JSON Schemas.

forms        every document, by the command and the options that choose it; its schema

document     their base
runs         runs, their iterations and trajectories: `runs`, `show`
training     runs that begin, go on or end: `train`, `fork`, `follow`, `cancel`, `up`, `down`, `view`, `report`
settings     `presets`, `envs`, `new`, `schema`
planning     what settings need: `validate`, `plan`
analysis     stored data: `audit`, `lineage`, `sql --views`
measuring    what was measured on them: `diagnose`, `compare`, `objectives`, `credit`
credit       estimators beside the true credit of turns, in that of `credit`
recomputing  `verify`, `replay`, `checkpoint`
studies      plans and lists of `ablate` and `evaluate`; their results are models of `ragen.studies`
stores       `store`, `import`, `export`, `record`, `skill`

No value is rounded; NaN and infinities are null; times are ISO 8601.
"""
