"""Studies: a grid whose cells are runs (an ablation) or checkpoints (a sweep). Start with `studies`.

spec -> cells -> (run by flows) -> outcomes -> result -> tables, figures; kept in `<store>/`

spec            a study's specification, from TOML
grid, cells     cells that are runs: settings, compared over matched seeds
sweep, checkpoints   cells that are checkpoints x environments x temperatures x seeds
outcomes        stored evaluations and metrics, by prompt and by iteration
ranks           rank correlations with intervals
result          base classes of results
ablation        result of runs: success over training, differences from the base
scores          a policy on a panel, and how it differs from another
pairs           every line of a leaderboard against every line above it
leaderboard     result of checkpoints: scores, ranks, differences from the first
generalisation  every run on the panels of all
finding         what a paper reports, and whether it shows here
finish          missing cells are computed, and a result is made of all
tables, sweep_tables, figures   results as tables and figures
studies         the studies of one kind in one store
grids           the grids of ablations that have a name
"""
