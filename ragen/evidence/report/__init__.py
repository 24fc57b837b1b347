"""What people look at: wandb while a run works, self-contained HTML pages afterwards.

tracking         `Tracker`: metrics to wandb, offline unless configured
data             `gather`: a run's facts, curves, decisions, stages and sampled trajectories, from a store
page             `render_report`: ReportData -> one HTML page that needs no network
comparing        `gather_runs`: several runs, where they differ and what they share
comparison_page  `render_comparison`: the same as one HTML page
objectives_page  `render_objectives`: objectives on stored rollouts, as one HTML page
comparison       `draw_comparison`: success curves of several runs -> one SVG

audited          `audited`: what the audits found, a line each
reading          `Reader`: what can be read of a run, and a list of what cannot
decisions        what the filter decided on each group
trajectories     training rollouts as the page shows them
evaluations      evaluated episodes in the same form
tokens           where each token of a recorded text begins and ends
boards           what each turn looked like, by playing the stored actions again
embedding        which trajectories travel in the page, within a budget
curves           panels of raw and smoothed curves, with intervals
times            where the time of a run went, by its manifests
words            a run in sentences and facts
document         a page of templates, scripts, styles and data, under a content security policy
templates/       HTML, styles and scripts, one concept a file
"""
