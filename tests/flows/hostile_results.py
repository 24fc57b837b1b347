"""Results of an ablation and of a sweep, with hostile text in every text field."""

from starpo.ragen.studies.ablation import AblationResult, PanelResult
from starpo.ragen.studies.ablation import CellResult as AblationCell
from starpo.ragen.studies.finding import PaperFinding
from starpo.ragen.studies.grid import Grid
from starpo.ragen.studies.leaderboard import Standing, SweepResult
from starpo.ragen.studies.scores import Score
from starpo.ragen.studies.sweep import Sweep
from tests.flows.hostile import HOSTILE

PANEL = PanelResult(
    first=0.25, last=0.5, last_iteration=4, peak=0.75, peak_iteration=2, difference=None,
    curve={0: 0.25, 4: 0.5}, seed_curves={0: {0: 0.25, 4: 0.5}},
)  # fmt: skip


def hostile_ablation(name: str) -> AblationResult:
    """Make a result with one cell per text, which is the cell's label, run, panel and error."""
    return AblationResult(
        name=name,
        grid=Grid(
            name=name, preset=HOSTILE[0], axes={"filter.keep": list(HOSTILE)}, seeds=[0, 1, 2], figure="league",
            finding=PaperFinding(
                source=HOSTILE[0], claim=HOSTILE[-1], numbers=dict.fromkeys(HOSTILE, 0.5),
                expected=dict.fromkeys(HOSTILE, "higher"),
            ),
        ),
        panel="sokoban",
        cells=[
            AblationCell(
                label=evil, values={evil: evil}, is_base=evil == HOSTILE[0], runs={0: "mine", 1: evil, 2: f"{evil}2"},
                errors={1: evil, 2: f"ConfigError: {evil}"}, panels={"sokoban": PANEL, evil: PANEL},
            )
            for evil in HOSTILE
        ],
    )  # fmt: skip


def hostile_sweep(name: str) -> SweepResult:
    """Make the corresponding result of a sweep."""
    score = Score(
        seeds=[0], success=0.5, low=0.25, high=0.75, num_prompts=8, num_episodes=8, num_seen_prompts=1, seen_success=0.5
    )
    return SweepResult(
        name=name,
        sweep=Sweep(name=name, runs=list(HOSTILE), environments=list(HOSTILE), is_matrix=True),
        runs={evil: evil for evil in HOSTILE},
        environments=list(HOSTILE),
        cells={evil: evil for evil in HOSTILE},
        errors={evil: evil for evil in HOSTILE},
        waiting={evil: evil for evil in HOSTILE},
        leaderboard=[
            Standing(
                rank=1, run=evil, iteration=1, temperature=0.5, success=0.5, low=0.25, high=0.75, difference=None,
                scores={evil: score},
            )
            for evil in HOSTILE
        ],
    )  # fmt: skip
