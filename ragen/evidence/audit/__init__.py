"""Queries over stored runs: SQL, named audits, and the lineage of artifacts. Read-only.

named        the artifacts that the iterations of a run reference
views        names, columns and meaning of the SQL views
database     read-only SQL over Arrow data, restricted to the views
stored       the views over a local or remote store, read column by column
audits       the named audits (`ragen.core.registry.AUDITS`), run one by one
panels       the initial states of evaluations that training had already visited
staleness    the age of the turns that each iteration trained on
time_left    the time budget of a query
finding      the result of an audit
responses, action_effects, rewards, groups, errors, baselines, stale_use, retokenisation, contamination:
             the audits, functions of a `Database`
lineage      ancestors and descendants of an artifact, across all runs of a store

    runs -> named -> stored -> Database -> audits -> Finding
"""
