"""What an update reads: from stored rows to micro-batches.

trajectories  stored rows -> the trajectories and segments a learner trains on
paid          trajectories with what each component of the reward paid
taught        trajectories with what a teacher says of their tokens
credited      trajectories with the measured advantages of their turns
tokens        all response tokens of an update in one flat order, and as a rectangle
observed      contexts in which what the environment shows is predicted too
spans         the part of the response that a token belongs to
batches       splits trajectories into mini-batches, packs rows into micro-batches
prefix_rows   segments with a common prefix in one row: every prefix is computed once
even_rows     the length of rows at which parts that are computed in parallel get equally many
"""
