"""Drawings of results, one figure or one family of them per module.

figure        definition of a figure: the metrics that it needs, its drawing, its tables, its verdicts
success       success over updates, and differences from the base: drawn for every ablation
bars          success at the end, the paper's numbers beside ours (the papers' tables)
signals       which signal falls first (RAGEN, Fig. 6)
trends        metrics early and late in training: length of the reasoning (RAGEN, Fig. 11), and responses at the first
              and the last evaluation (RAGEN, Table 1)
correlations  I(X; Z) against success, and gradients by the standard deviation of a group's returns (RAGEN-2)
league        methods ranked at equal trajectories and at equal time
catalogue     the figures that a grid can ask for, by name
heat_maps     scores of a sweep, and generalisation
"""
