"""Drawings of results, one figure or one family of them per module.

figure        definition of a figure: the metrics that it needs, its drawing, its tables, its verdicts
success       success over updates, and differences from the base: drawn for every ablation
signals       which signal falls first (RAGEN, Fig. 6)
trends        metrics early and late in training: length of the reasoning (RAGEN, Fig. 11), and how different responses
              are (RAGEN, Table 1)
correlations  I(X; Z) against success, and gradients by the standard deviation of a group's returns (RAGEN-2)
league        methods ranked at equal trajectories and at equal time
catalogue     the figures that a grid can ask for, by name
generalisation  every run on the panels of all, as a heat map
"""
