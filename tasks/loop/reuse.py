"""What a run reuses, and which code made it; reported at its start, so that old results are not mistaken for new ones.

configuration -> keys of the loop's stages, up to the first that is missing -> manifests -> Reuse -> one line
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import RunStoppedError, StoreError
from starpo.ragen.runs.work import Work
from starpo.ragen.store import Store
from starpo.ragen.store.artifacts.provenance import code_revision, versions
from starpo.tasks.loop.plan import Planner
from starpo.tasks.loop.training import train

_PASSED_ON = ("warm_start", "rollout", "update")
"""Stages that all later ones depend on: if one of them is missing, so is everything after it."""

_NUM_READERS = 16


@dataclass(frozen=True)
class Reuse:
    """Stages that a run reuses.

    Attributes:
        num_stages: Number of stages whose artifacts are all stored.
        others: Other code, by release and commit -> number of these stages that it made.
    """

    num_stages: int
    others: dict[str, int]

    def __str__(self) -> str:
        if not self.num_stages:
            return "nothing is reused: all stages are new"
        count = f"{self.num_stages} stage{'s are' if self.num_stages > 1 else ' is'} reused"
        if not self.others:
            return f"{count}, made by this code"
        makers = ", ".join(f"{number} by {maker}" for maker, number in sorted(self.others.items()))
        return (
            f"{count}, {sum(self.others.values())} of them made by other code ({makers}); "
            "--fresh trains without reusing any"
        )


def reused(store: Store, name: str, config: StarPOConfig) -> Reuse:
    """Find the stages that a run with these settings would reuse.

    Args:
        store: Where artifacts are looked up.
        name: The run's name.
        config: Its settings.

    Raises:
        StoreError: If the store cannot be read.
    """
    planner = Planner(store, name, needed=_PASSED_ON)
    with suppress(RunStoppedError):
        train(planner, config)
    stages = [stage for stage in planner.plan.stages if stage in planner.plan.stored]
    here = _maker(versions().get("starpo"), code_revision())
    with ThreadPoolExecutor(_NUM_READERS) as pool:
        makers = Counter(pool.map(lambda stage: _made_by(store, stage), stages))
    return Reuse(len(stages), {maker: number for maker, number in makers.items() if maker != here})


def _made_by(store: Store, stage: Work) -> str:
    try:
        kind = stage.outputs[0]
        manifest = store.lasting_manifest(kind, stage.key)
    except StoreError:
        return "unknown code"
    facts = manifest.provenance.get("versions")
    release = facts.get("starpo") if isinstance(facts, dict) else None
    return _maker(release, manifest.provenance.get("code"))


def _maker(release: object, commit: object) -> str:
    """Format release and commit, such as `starpo 0.1.0 at 1a2b3c4d5e6f-modified`."""
    if not isinstance(commit, str):
        return f"starpo {release}"
    digest, dash, modified = commit.partition("-")
    return f"starpo {release} at {digest[:12]}{dash}{modified}"
