"""The speed of a stored run, from which the time of another one is estimated.

runs/<run> + manifests -> Pace -> time of another run
"""

from starpo.ragen.config.load import recorded_config
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.cost import manifests_of
from starpo.ragen.evidence.times import stage_seconds
from starpo.ragen.sizing.hours import Pace, num_examples, num_passes, num_played
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import kind_of


def pace_of(store: Store, run: str) -> Pace:
    """Return the speed of a run, by the seconds of its stages and the work that its settings ask for.

    So a run with the same settings takes as long an iteration, whatever its filter kept and its turns shared.

    Raises:
        StoreError: If there is no such run.
        ConfigError: If it has no update yet, or its settings are not valid in this release.
    """
    record = store.runs.get(run)
    config = recorded_config(run, record.config, "Take the speed of a run of this release")
    stages = stage_seconds(manifests_of(store, record))
    rollouts = [series for stage, series in stages.items() if kind_of(stage) == "rollout"]
    if "update" not in stages or not rollouts:
        raise ConfigError(f"run '{run}' has stored no update yet, so its speed is not known")
    updates, num_rollouts = stages["update"], max(map(len, rollouts))
    pass_s = sum(updates.values()) / len(updates) / num_passes(config)
    tuned_s = sum(stages.get("warm_start", {}).values())
    return Pace(
        episode_s=sum(sum(series.values()) for series in rollouts) / num_rollouts / num_played(config),
        pass_s=pass_s,
        example_s=tuned_s / num_examples(config) if num_examples(config) and tuned_s else pass_s,
    )
