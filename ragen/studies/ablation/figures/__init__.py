"""Ablations as the papers draw them, one figure per module.

figure        definition of a figure: the metrics that it needs, its drawing, its tables, its verdicts
bars          success at the end, the paper's numbers beside ours (the papers' tables)
signals       which signal falls first (RAGEN, Fig. 6)
length        length of the reasoning over training (RAGEN, Fig. 11)
transcripts   responses at the first and the last evaluation (RAGEN, Table 1)
dependence    I(X; Z) against success (RAGEN-2)
gradients     gradients by the standard deviation of a group's returns (RAGEN-2)
trends        change of a metric from the beginning to the end, by seed: table and verdicts
league        methods ranked at equal trajectories and at equal time
catalogue     all figures by name; the success curves, which every ablation has, are in `ablation.plot`
"""
