"""Many runs or cells, measured side by side. Begin with `studies`, which says what a kind of study is made of.

what is asked for (spec) -> cells -> (done by flows) -> outcomes -> result -> tables, drawing; kept in `<store>/`

ablation     settings against each other over matched seeds: grid, extending, cells, peak, result, finding, tables,
             plot, and figures, as the papers draw them
sweep        checkpoints x environments x temperatures x seeds: sweep, cells, result, transfer, tables, heat_map, matrix
spec         what a study asks for, from TOML
outcomes     what stored evaluations and metrics say, prompt by prompt and iteration by iteration
transcripts  responses at the first and the last evaluation
bootstrap    paired intervals of a difference of success
ranks        rank correlations with intervals
result       what results have in common
studies      the studies of one kind in one store
"""
