"""The uncertainty filter: which groups of a rollout are trained on.

strategies  choose the best groups from their scores alone; one pure function each
select      scores and ranks every group, and records the reason of the decision: dataset `selection`
"""
