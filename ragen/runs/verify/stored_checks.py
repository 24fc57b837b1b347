"""Checks of a stage's stored artifacts against each other and the environment.

visit, artifacts, config -> planned_checks -> PlannedCheck.differences -> run_check -> CheckResult

No policy takes part, so these checks hold on every machine.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, first_line, named_line
from starpo.ragen.core.guard import FOREIGN
from starpo.ragen.core.visible import quoted
from starpo.ragen.envs.make import environment_type
from starpo.ragen.runs.verify.actions import episode_differences, turn_differences
from starpo.ragen.runs.verify.chosen import Visit
from starpo.ragen.runs.verify.inputs import VerifiedInputs
from starpo.ragen.runs.verify.numbers import (
    evaluation_differences,
    folding_differences,
    rollout_differences,
    update_differences,
)
from starpo.ragen.runs.verify.scratch import Stored
from starpo.ragen.runs.verify.unreplayable import check_can_be_played, check_is_at_hand, evaluated_cells, played_by
from starpo.ragen.runs.verify.verdict import CheckResult, NotComputedError, Verdict, summarised
from starpo.schemas.imported import is_imported
from starpo.schemas.manifest import Manifest


@dataclass(frozen=True)
class StoredStage:
    """What the checks of a stage read.

    Attributes:
        visit: The stage.
        artifacts: Kind -> its artifact, as far as it can be read.
        config: Settings of the run.
        inputs: Provides the stage's inputs.
    """

    visit: Visit
    artifacts: Mapping[str, Stored]
    config: StarPOConfig
    inputs: VerifiedInputs

    def table(self, kind: str) -> pa.Table:
        """Return the rows of a dataset that can be read."""
        table = self.artifacts[kind].table
        assert table is not None
        return table

    def manifest(self, kind: str) -> Manifest:
        """Return the manifest of an artifact that has one."""
        manifest = self.artifacts[kind].manifest
        assert manifest is not None
        return manifest


@dataclass(frozen=True)
class PlannedCheck:
    """A check of a stored artifact.

    Attributes:
        name: Name of the check, such as `actions`.
        kind: Kind of the artifact.
        differences: Lists the differences found, as sentences; raises NotComputedError if it cannot be carried out.
    """

    name: str
    kind: str
    differences: Callable[[StoredStage], Iterable[str]]


def planned_checks(visit: Visit, artifacts: Mapping[str, Stored], config: StarPOConfig) -> list[PlannedCheck]:
    """Return the checks that apply to a stage, given what of its artifacts can be read, in the order of the report."""
    sound = {kind for kind, artifact in artifacts.items() if not artifact.fault and not artifact.is_dropped}
    if visit.stage == "rollout" and "turns" in sound:
        return [
            PlannedCheck("actions", "turns", _turn_actions),
            PlannedCheck("texts", "turns", partial(_texts, "turns")),
            PlannedCheck("numbers", "turns", _rollout_numbers),
        ]
    if visit.stage == "evaluate" and "episodes" in sound:
        numbers = [PlannedCheck("numbers", "metrics", _evaluation_numbers)] if "metrics" in sound else []
        shows = "episode_turns" in sound and config.agent.shows_images and "turn_images" in visit.outputs
        texts = [PlannedCheck("texts", "episode_turns", partial(_texts, "episode_turns"))] if shows else []
        return [PlannedCheck("actions", "episodes", _episode_actions), *texts, *numbers]
    return _checks_of_update(visit, artifacts, sound, config) if visit.stage == "update" else []


def run_check(check: PlannedCheck, stage: StoredStage) -> CheckResult:
    """Carry out a check; an error that the stored data cause is a finding."""
    visit = stage.visit
    try:
        detail = summarised(check.differences(stage))
        verdict = Verdict.DIFFERENT if detail else Verdict.SAME
    except NotComputedError as error:
        verdict, detail = error.verdict, f"it cannot be checked: {error}"
    except (ArtifactMissingError, ArtifactDamagedError) as error:
        verdict, detail = Verdict.DAMAGED, f"it cannot be checked: {first_line(error)}"
    except FOREIGN as error:  # any error that forged data cause in a check is a finding
        verdict, detail = Verdict.DIFFERENT, f"the check fails: {named_line(error)}"
    artifact = f"{check.kind}/{visit.outputs[check.kind]}"
    return CheckResult(visit.iteration, visit.name, check.name, verdict, detail, artifact)


def has_arithmetic_advantages(config: UpdateConfig) -> bool:
    """Whether the advantages of an update follow from stored turns, rewards and choices alone, without a policy."""
    companions = {companion.name for companion in config.companions}
    if config.kl_placement == "loss":
        companions.discard("reference")
    return not companions and config.needs.isdisjoint({"probabilities", "spans"})


def _checks_of_update(
    visit: Visit, artifacts: Mapping[str, Stored], sound: set[str], config: StarPOConfig
) -> list[PlannedCheck]:
    checks = []
    if "samples" in sound:
        checks.append(PlannedCheck("tokens", "samples", _update_tokens))
        is_as_expected = not visit.excuse and not visit.is_misplaced
        if is_as_expected and has_arithmetic_advantages(config.at(visit.iteration).update):
            checks.append(PlannedCheck("advantages", "samples", _update_advantages))
    if "metrics" in sound and artifacts.get("checkpoint", Stored()).manifest is not None:
        checks.append(PlannedCheck("numbers", "metrics", _update_numbers))
    return checks


def _turn_actions(stage: StoredStage) -> Iterable[str]:
    turns, manifest = stage.table("turns"), stage.manifest("turns")
    if manifest.stage.name == "import" and is_imported(pl.Series(turns["info"])).any():
        reason = "the trajectories were imported from traces that name no actions of an environment known here"
        raise NotComputedError(Verdict.NOT_SHOWN, reason)
    check_can_be_played(stage.visit, stage.config, manifest)
    return turn_differences(turns, stage.config.environment, stage.config.agent)


def _texts(kind: str, stage: StoredStage) -> Iterable[str]:
    from starpo.ragen.agents.policy.load import load_tokenizer
    from starpo.ragen.agents.prompting.context import ContextBuilder
    from starpo.ragen.runs.verify.texts import text_differences

    environment, agent, manifest = played_by(stage.visit, stage.config), stage.config.agent, stage.manifest(kind)
    if environment is None:
        return []  # named by the check of the actions
    check_is_at_hand(environment)
    if environment_type(environment.type).plays:
        reason = f"the prompts of {environment.type} are not of its observations alone"
        raise NotComputedError(Verdict.NOT_SHOWN, reason)
    key = manifest.inputs.get("checkpoint")
    if key is None:
        reason = "the trajectories were imported without the tokenizer that made them"
        raise NotComputedError(Verdict.NOT_SHOWN, reason)
    tokenizer = load_tokenizer(stage.inputs.folder("checkpoint", key))
    longest = stage.config.at(stage.visit.iteration).rollout.max_response_tokens
    contexts = ContextBuilder(tokenizer, agent, longest)
    if agent.shows_images:
        check_can_be_played(stage.visit, stage.config, manifest)
    images = stage.artifacts.get("turn_images", Stored())
    shown = None if images.fault or images.is_dropped else images.table
    return text_differences(stage.table(kind), environment, tokenizer, contexts, shown)


def _rollout_numbers(stage: StoredStage) -> Iterable[str]:
    return rollout_differences(stage.table("turns"), stage.manifest("turns").headline)


def _episode_actions(stage: StoredStage) -> Iterable[str]:
    cells, cell = evaluated_cells(stage.config), stage.visit.cell
    if cell not in cells:
        return [f"the run's settings have no cell {quoted(cell)}; cells: {', '.join(cells)}"]
    check_can_be_played(stage.visit, stage.config, stage.manifest("episodes"))
    return episode_differences(stage.table("episodes"), cells[cell])


def _evaluation_numbers(stage: StoredStage) -> Iterable[str]:
    episodes, headline = stage.table("episodes"), stage.manifest("episodes").headline
    yield from evaluation_differences(episodes, stage.table("metrics"), headline)
    turns = stage.artifacts.get("episode_turns")
    if turns is not None and turns.table is not None:
        yield from folding_differences(episodes, turns.table)


def _update_tokens(stage: StoredStage) -> Iterable[str]:
    from starpo.ragen.runs.verify.tokens import token_differences

    return token_differences(*_training_data(stage), stage.table("samples"))


def _update_advantages(stage: StoredStage) -> Iterable[str]:
    from starpo.ragen.learning.learners.data.paid import with_components
    from starpo.ragen.learning.learners.data.trajectories import assemble
    from starpo.ragen.runs.verify.advantages import advantage_differences

    turns, rewards, selection = _training_data(stage)
    kept_share = pc.mean(selection["kept"].cast(pa.float64())).as_py()
    config = stage.config.at(stage.visit.iteration).update
    trajectories = assemble(turns, rewards, selection)
    if "components" in config.needs:
        trajectories = with_components(trajectories, rewards)
    if "credits" in config.needs:
        from starpo.ragen.learning.learners.data.credited import with_credits

        trajectories = with_credits(trajectories, stage.inputs.table("credits", stage.manifest("samples").inputs))
    return advantage_differences(trajectories, kept_share, config, stage.table("samples"))


def _update_numbers(stage: StoredStage) -> Iterable[str]:
    return update_differences(stage.table("metrics"), stage.manifest("checkpoint").headline)


def _training_data(stage: StoredStage) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return the turns, rewards and selection of an update."""
    inputs = stage.manifest("samples").inputs
    turns, rewards, selection = (stage.inputs.table(kind, inputs) for kind in ("turns", "rewards", "selection"))
    return turns, rewards, selection
