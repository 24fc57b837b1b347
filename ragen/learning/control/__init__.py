"""What the metrics so far mean for the rest of a run. Nothing is read from a store.

rollout_use  Online-k: reuse of a rollout by several updates
standstill   why nothing is learned from an iteration, and what to try
thresholds   when a metric counts as a signal, and why
smoothing    exponential moving average with bias correction
collapse     a verdict, with its signals, from series of metrics (RAGEN, findings)
alarm        the verdict after every iteration, while a run trains
"""
