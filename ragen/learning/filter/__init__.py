"""The uncertainty filter: which groups of a rollout are trained on.

strategies  how many of the best groups, from their scores alone; one pure function each
select      scores, ranks and explains every group: dataset `selection`
"""
