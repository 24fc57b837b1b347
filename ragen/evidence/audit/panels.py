"""View `panels`: the initial states of a run's evaluations, and whether training had begun in them before.

artifacts `episodes` -> the evaluated checkpoint -> TrainingWalk -> one row per initial state
"""

from collections.abc import Iterable

import pyarrow as pa

from starpo.ragen.evidence.audit.named import NamedArtifact
from starpo.ragen.evidence.audit.views import RECORD_VIEWS
from starpo.ragen.runs.training_states import TrainingWalk
from starpo.ragen.store import Store
from starpo.ragen.store.artifacts.keys import canonical_json


def panels(store: Store, named: Iterable[NamedArtifact]) -> pa.Table:
    """Build the view: one row per initial state of each artifact of kind `episodes`.

    Args:
        store: Store that holds the artifacts and the lineage of their checkpoints.
        named: Artifacts of any kind; kinds other than `episodes` are skipped.

    Raises:
        ArtifactMissingError: If an artifact of `named` is missing.
        ArtifactDamagedError: If one is damaged, or something in the lineage of its checkpoint is.
    """
    evaluated = [artifact for artifact in named if artifact.kind == "episodes"]
    walks: dict[tuple[str, str], TrainingWalk] = {}  # those of a run's stage are of one lineage, in order
    rows = []
    for artifact in evaluated:
        manifest = store.manifest("episodes", artifact.key)
        checkpoint, environment = manifest.inputs.get("checkpoint"), manifest.settings.get("environment")
        trained: TrainingWalk | None = None
        if checkpoint:
            trained = walks.setdefault((artifact.run, artifact.stage), TrainingWalk(store))
            trained.come_to(checkpoint)
        states = store.read_table("episodes", artifact.key, ["cell", "env", "initial_state_digest"]).to_pylist()
        rows += [
            {
                "run": artifact.run,
                "iteration": artifact.iteration,
                "panel": panel,
                "environment": played,
                "initial_state_digest": digest,
                "is_seen": trained is not None and digest in trained.digests,
                "is_demonstrated": trained is not None and digest in trained.demonstrated,
                "num_unknown": 1 if trained is None else trained.num_unknown,
                "settings": canonical_json(environment) if environment else None,
                "artifact": artifact.key,
                "is_reused": artifact.is_reused,
            }
            for panel, played, digest in dict.fromkeys(
                (row["cell"].removesuffix("/seen"), row["env"], row["initial_state_digest"]) for row in states
            )
        ]
    return pa.Table.from_pylist(rows, schema=RECORD_VIEWS["panels"])
