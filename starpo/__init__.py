"""StarPO as a pipeline, under the one name that an installation claims.

flows, tasks, ragen, schemas   the folders at the repository's root, by links; a wheel holds them as they are
"""
