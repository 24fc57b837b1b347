"""What people look at: wandb while a run works, one self-contained HTML page afterwards.

tracking    `Tracker`: metrics to wandb, offline unless configured
data        `gather`: a run's facts, curves, decisions and sampled trajectories, from a store
boards      what each turn looked like, by playing the stored actions again
curves      panels of raw and smoothed curves, with intervals
page        `render_report`: ReportData -> one HTML page that needs no network
comparison  `draw_comparison`: success curves of several runs -> one SVG
templates/  the page's HTML, style and script
"""
