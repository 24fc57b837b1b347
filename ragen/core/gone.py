"""Names that have gone since 0.1.0 was first used, and what to use instead, for messages about unknown names."""

GONE: dict[str, dict[str, str]] = {
    "command": {
        "pack": "`starpo store copy RUN URL` copies a run with everything it needs",
        "unpack": "`starpo store copy RUN URL --store ITS_STORE` copies a run back",
        "eval-sweep": "`starpo evaluate RUN` evaluates checkpoints, with the same options (--environments is --on)",
        "serve": "`starpo up` starts the server and the deployments",
        "backtest": "`starpo diagnose RUN` says since when a run has been collapsing, and by which signals",
        "online-k": "`starpo ablate online-k` compares updates per rollout",
    },
    "preset": {
        "bandit-paper-starpo": 'extends = ["bandit-paper", "starpo"] in a TOML file',
        "frozen-lake-paper-starpo": 'extends = ["frozen-lake-paper", "starpo"] in a TOML file',
        "sokoban-paper-starpo": 'extends = ["sokoban-paper", "starpo"] in a TOML file',
        "sokoban-paper-public-code": 'extends = ["sokoban-paper", "starpo-public-code"] in a TOML file',
    },
    "grid": {
        **dict.fromkeys(
            ("fig-6-bandit", "fig-6-frozen-lake", "fig-6-sokoban"),
            "`starpo diagnose RUN`, of the runs of fig-5-*, says which signal was raised when",
        ),
        **dict.fromkeys(
            ("fig-11-bandit", "fig-11-frozen-lake", "fig-11-sokoban", "table-1-bandit", "table-1-sokoban"),
            "`starpo sql` shows the metric over the iterations of a run (docs/findings.md)",
        ),
        "dependence-bandit": "`starpo diagnose RUN` shows I(X; Z) and H(Z|X) of every probe",
        "gradients-bandit": "`starpo diagnose RUN --gradients` shows them by the groups' reward std",
    },
    "setting": {
        "checkpoint_keep_last": "the newest checkpoint is derived from the last kept one (`checkpoint_every`)",
        "split_rule": "a seed always selects the goal at the seed modulo the size of its split",
        "should_show_attributes": "a product has no page of attributes",
    },
    "audit": {
        "reasoning": "the reward components 'grounding' and 'world_model' score what reasoning says",
        "outliers": "`starpo sql` orders the view 'trajectories' by what you look for",
    },
}
"""Kind of name -> name -> what replaces it."""


def replaced(kind: str, name: str) -> str:
    """Return "; it was removed: ..." for a name that has, or an empty string."""
    known = GONE.get(kind, {}).get(name)
    return f"; it was removed: {known}" if known else ""
