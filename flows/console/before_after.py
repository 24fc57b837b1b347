"""What training changed: an initial state of the panel that was lost before and is won now, and how many are such.

first and last evaluation -> dataset `episodes` of both -> an episode of each from the same initial state
"""

from typing import Any

from starpo.flows.console.terminal import Console, say
from starpo.ragen.store import Store

Episode = dict[str, Any]


def print_before_after(store: Store, run: str, console: Console) -> None:
    """Print it; nothing if the run has evaluated its own environment once at most."""
    stage = f"evaluate:{store.runs.get(run).environment}"
    keys = [stages[stage]["episodes"] for _, stages in sorted(store.runs.iterations(run).items()) if stage in stages]
    if len(keys) < 2:
        return
    before, after = (_by_start(store.read_table("episodes", key).to_pylist()) for key in (keys[0], keys[-1]))
    won = [start for start, episode in after.items() if episode["success"] and not before[start]["success"]]
    lost = [start for start, episode in after.items() if before[start]["success"] and not episode["success"]]
    say(
        console,
        f"of {len(after)} initial states, {len(won)} were lost before and are won now, {len(lost)} the other way",
    )
    if won:
        say(console, f"such as   {before[won[0]]['observations'][0]}")
        for label, episode in (("before", before[won[0]]), ("after", after[won[0]])):
            say(console, f"{label:<9} {' '.join(episode['responses'])}")


def _by_start(episodes: list[Episode]) -> dict[tuple[int, int], Episode]:
    return {(episode["env_seed"], episode["member"]): episode for episode in episodes}
