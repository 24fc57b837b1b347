"""Checks of a stage's stored artifacts against each other and the environment.

No policy takes part, so these checks hold on every machine.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.visible import quoted
from starpo.ragen.envs.make import environment_type
from starpo.ragen.runs.verify.actions import episode_differences, turn_differences
from starpo.ragen.runs.verify.chosen import Visit
from starpo.ragen.runs.verify.numbers import evaluation_differences, rollout_differences, update_differences
from starpo.ragen.runs.verify.recomputation import NotComputedError, Recomputation
from starpo.ragen.runs.verify.scratch import Stored
from starpo.ragen.runs.verify.verdict import Verdict
from starpo.ragen.store.attempts import of_kind, read_attempts
from starpo.schemas.imported import is_imported


@dataclass(frozen=True)
class StoredChecks:
    """Checks of stored artifacts.

    Attributes:
        recomputation: Provides the artifacts and the run's settings.
    """

    recomputation: Recomputation

    def of(self, visit: Visit, stored: Mapping[str, Stored]) -> Iterator[tuple[str, str, Iterator[str]]]:
        """Check the stored artifacts against each other and the environment.
        Yields:
            Name of the check, kind of the checked artifact, differences.
        """
        sound = {kind: artifact for kind, artifact in stored.items() if not artifact.fault and not artifact.is_dropped}
        if visit.stage == "rollout" and "turns" in sound:
            turns = sound["turns"].table
            yield "actions", "turns", self._action_differences(visit, sound["turns"])
            yield "texts", "turns", self._text_differences(visit, sound["turns"], sound.get("turn_images"))
            yield "numbers", "turns", rollout_differences(turns, headline(sound["turns"]))
        if visit.stage == "evaluate" and "episodes" in sound:
            episodes = sound["episodes"].table
            yield "actions", "episodes", self._episode_differences(visit, sound["episodes"])
            if "metrics" in sound:
                yield (
                    "numbers",
                    "metrics",
                    evaluation_differences(episodes, sound["metrics"].table, headline(sound["episodes"])),
                )
        if visit.stage == "update" and "samples" in sound:
            yield "tokens", "samples", self._token_differences(sound["samples"])
            config = self._config.at(visit.iteration).update
            if not visit.excuse and not visit.is_misplaced and has_arithmetic_advantages(config):
                yield "advantages", "samples", self._advantage_differences(config, sound["samples"])
        if visit.stage == "update" and "metrics" in sound and stored.get("checkpoint", Stored()).manifest is not None:
            yield "numbers", "metrics", update_differences(sound["metrics"].table, headline(stored["checkpoint"]))

    def _episode_differences(self, visit: Visit, episodes: Stored) -> Iterator[str]:
        cells = self.recomputation.cells
        if visit.cell not in cells:
            yield f"the run's settings have no cell {quoted(visit.cell)}; cells: {', '.join(cells)}"
            return
        self.recomputation.check_can_be_played(visit, episodes.manifest)
        yield from episode_differences(episodes.table, cells[visit.cell])

    def _action_differences(self, visit: Visit, turns: Stored) -> Iterator[str]:
        assert turns.manifest is not None
        assert turns.table is not None
        infos = pl.Series(turns.table["info"])
        if turns.manifest.stage.name == "import" and is_imported(infos).any():
            reason = "the trajectories were imported from traces that name no actions of an environment known here"
            raise NotComputedError(Verdict.NOT_SHOWN, reason)
        self.recomputation.check_can_be_played(visit, turns.manifest)
        yield from turn_differences(turns.table, self._config.environment, self._config.agent)

    def _text_differences(self, visit: Visit, turns: Stored, turn_images: Stored | None) -> Iterator[str]:
        from starpo.ragen.agents.policy.load import load_tokenizer
        from starpo.ragen.agents.prompting.context import ContextBuilder
        from starpo.ragen.runs.verify.texts import text_differences

        assert turns.manifest is not None
        if environment_type(self._config.environment.type).plays:
            reason = f"the prompts of {self._config.environment.type} are not of its observations alone"
            raise NotComputedError(Verdict.NOT_SHOWN, reason)
        key = turns.manifest.inputs.get("checkpoint")
        if key is None:
            reason = "the trajectories were imported without the tokenizer that made them"
            raise NotComputedError(Verdict.NOT_SHOWN, reason)
        self.recomputation.provide("checkpoint", key)
        tokenizer = load_tokenizer(self.recomputation.scratch.store.local_folder("checkpoint", key))
        longest = self._config.at(visit.iteration).rollout.max_response_tokens
        contexts = ContextBuilder(tokenizer, self._config.agent, longest)
        if self._config.agent.shows_images:
            self.recomputation.check_can_be_played(visit, turns.manifest)
        shown = None if turn_images is None else turn_images.table
        yield from text_differences(turns.table, self._config.environment, tokenizer, contexts, shown)

    def _token_differences(self, samples: Stored) -> Iterator[str]:
        from starpo.ragen.runs.verify.tokens import token_differences

        assert samples.manifest is not None
        inputs = samples.manifest.inputs
        turns, rewards, selection = (self._input(kind, inputs) for kind in ("turns", "rewards", "selection"))
        yield from token_differences(turns, rewards, selection, samples.table)

    def _advantage_differences(self, config: UpdateConfig, samples: Stored) -> Iterator[str]:
        from starpo.ragen.learning.learners.data.trajectories import assemble
        from starpo.ragen.runs.verify.advantages import advantage_differences

        assert samples.manifest is not None
        inputs = samples.manifest.inputs
        turns, rewards, selection = (self._input(kind, inputs) for kind in ("turns", "rewards", "selection"))
        kept_share = pc.mean(selection["kept"].cast(pa.float64())).as_py()
        yield from advantage_differences(assemble(turns, rewards, selection), kept_share, config, samples.table)

    def _input(self, kind: str, inputs: Mapping[str, str]) -> pa.Table:
        for key in of_kind(inputs, kind):
            self.recomputation.scratch.provide(kind, key)
        return read_attempts(self.recomputation.scratch.store, kind, inputs)

    @property
    def _config(self) -> StarPOConfig:
        return self.recomputation.config


def has_arithmetic_advantages(config: UpdateConfig) -> bool:
    """Whether the advantages of an update follow from stored turns, rewards and choices alone, without a policy."""
    companions = {companion.name for companion in config.companions}
    if config.kl_placement == "loss":
        companions.discard("reference")
    return not companions and config.needs.isdisjoint({"probabilities", "spans"})


def headline(artifact: Stored) -> dict[str, float]:
    """Return the headline of an artifact's manifest; empty without one."""
    return artifact.manifest.headline if artifact.manifest else {}
