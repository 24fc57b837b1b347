"""Many runs or cells, measured side by side. Begin with `studies`, which says what a kind of study is made of.

what is asked for (spec) -> cells -> (done by flows) -> outcomes -> result -> tables, drawing; kept in `<store>/`

ablation   settings against each other over matched seeds: grid, cells, peak, result, tables, plot
sweep      checkpoints x environments x temperatures x seeds: sweep, cells, result, tables, heat_map
spec       what a study asks for, from TOML
outcomes   what stored evaluations say, prompt by prompt
bootstrap  paired intervals of a difference of success
rank_correlation  do two numbers order several things alike?
result     what results have in common
studies    the studies of one kind in one store
"""
