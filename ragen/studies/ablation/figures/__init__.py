"""Ablations as the papers draw them, a figure a file.

figure        what a figure is: the metrics that it needs, its drawing, its table, its verdicts
bars          success at the end, the paper's numbers beside ours (the tables)
signals       what falls first (RAGEN, Fig. 6)
length        length of the reasoning over training (RAGEN, Fig. 11)
transcripts   responses at the first and the last evaluation (RAGEN, Table 1)
dependence    I(X; Z) against success (RAGEN-2)
gradients     gradients by the standard deviation of a group's returns (RAGEN-2)
trends        how a metric's end compares with its beginning, seed by seed: table and verdicts
catalogue     all of them by name; the curves of success, which every ablation has, are `ablation.plot`
"""
