"""Comparisons of many runs or cells. Start with `studies`, which defines what a kind of study consists of.

spec -> cells -> (run by flows) -> outcomes -> result -> tables, drawings; kept in `<store>/`

ablation     settings compared over matched seeds: grid, extending, cells, peak, result, finding, tables,
             plot, and figures, as the papers draw them
sweep        checkpoints x environments x temperatures x seeds: sweep, cells, result, transfer, tables, heat_map, matrix
spec         specification of a study, from TOML
outcomes     stored evaluations and metrics, by prompt and by iteration
transcripts  responses at the first and the last evaluation
bootstrap    paired intervals of a difference in success
ranks        rank correlations with intervals
result       base classes of results
studies      the studies of one kind in one store
"""
