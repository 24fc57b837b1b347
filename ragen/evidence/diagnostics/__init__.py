"""Diagnostics: metrics of the health of a run, and a verdict on whether it is collapsing.

metrics        named metrics of one iteration (RAGEN, training settings), and the table that stores them
by_tag         the most common of them for each part of a mixture
series         the dataset `metrics` as values by name and iteration
smoothing      exponential moving average with bias correction
thresholds     when a metric counts as a signal, and why
reasoning      turns with a reasoning, and every reasoning under every prompt
template       whether the reasoning depends on the prompt (RAGEN-2)
plane          a run as a path over diversity and input dependence of its reasoning (RAGEN-2)
gradients      which groups carry a signal, by their reward std (RAGEN-2)
objectives     gradient directions of other objectives on the same rollout
online         Online-k: reuse of a rollout by several updates
collapse       a verdict, with its signals, from such series (RAGEN, findings)
standstill     why nothing is learned from an iteration, and what to try
alarm          the verdict after every iteration, while a run trains
fall           when success had halved for good, in hindsight
"""
