"""Questions to what runs have stored: SQL, named audits, and where an artifact comes from. Reads, and never writes.

named        the artifacts that a run's iterations name
views        names, columns and meaning of the views that SQL sees
database     SQL over Arrow data that can read its views and do nothing else
stored       the views over a store, local or remote, column by column
audits       the named audits (`ragen.core.registry.AUDITS`), run one by one
panels       in which initial states of evaluations training had begun
staleness    how old the turns were that each iteration trained on
finding      what an audit found
responses, action_effects, rewards, reasoning, groups, outliers, errors, baselines, stale_use, retokenisation,
             contamination: the audits, functions of a `Database`
lineage      ancestors and descendants of an artifact, through all runs of a store

    runs -> named -> stored -> Database -> audits -> Finding
"""
