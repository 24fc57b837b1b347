"""Every document, by the command and the options that choose it, and its JSON Schema."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, get_args

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from starpo.flows.console.documents import (
    analysis,
    measuring,
    planning,
    recomputing,
    runs,
    settings,
    stores,
    studies,
    training,
)
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.studies.ablation import AblationResult
from starpo.ragen.studies.leaderboard import SweepResult

FORMS: Mapping[str, Any] = MappingProxyType(
    {
        "train": training.FinishedRun,
        "fork": training.FinishedRun,
        "fork --settings": StarPOConfig,
        "follow": training.ProgressLine,
        "cancel": training.Cancellation,
        "validate": planning.Validation,
        "validate --settings": StarPOConfig,
        "plan": planning.Plan,
        "presets": list[settings.PresetRow],
        "presets --methods": list[settings.MethodRow],
        "envs": list[settings.EnvironmentRow],
        "new agent": settings.WrittenFiles,
        "new environment": settings.WrittenFiles,
        "new experiment": settings.WrittenFiles,
        "new prompt": settings.WrittenFiles,
        "runs": list[runs.RunFacts],
        "runs --tree": list[runs.BranchFacts],
        "view": training.ServedPage,
        "show": runs.RunDetails,
        "show --timings": list[runs.StageTime],
        "show --iteration": runs.IterationDetails,
        "show --iteration --trajectory": list[runs.PlayedTurn],
        "report": training.WrittenReport,
        "diagnose": measuring.DiagnosedRun,
        "compare": measuring.ComparedRuns,
        "sql": list[analysis.AnswerRow],
        "sql --views": list[analysis.View],
        "audit": list[analysis.AuditFinding],
        "audit --list": list[analysis.AuditName],
        "lineage": analysis.LineageGraph,
        "objectives": measuring.Objectives,
        "credit": measuring.Credits,
        "credit --verify": recomputing.VerifiedRun,
        "verify": recomputing.VerifiedRun,
        "replay": recomputing.ReplayedRun,
        "checkpoint": list[recomputing.CheckpointRow],
        "checkpoint --iteration": recomputing.CheckpointFolder,
        "evaluate": SweepResult,
        "evaluate --dry-run": studies.PlannedEvaluation,
        "evaluate --list": list[studies.EvaluationRow],
        "ablate": AblationResult,
        "ablate --dry-run": studies.PlannedAblation,
        "ablate --list": list[studies.GridRow],
        "record": stores.RecordedRun,
        "import": stores.ImportedRun,
        "export": stores.ExportedRun,
        "store gc": stores.DeletedGarbage,
        "store du": stores.StoreUsage,
        "store verify": stores.StoreIntegrity,
        "store copy": stores.CopiedRun,
        "store forget": stores.ForgottenRun,
        "up": training.ServedAddresses,
        "down": training.Stopped,
        "skill": stores.InstalledSkill,
        "schema": list[settings.FormRow],
    }
)
"""Command and the options that choose a form -> what it prints with `--json`; for `follow`, each line."""


def form_of(words: Sequence[str]) -> str:
    """Return the form that a command line (`show RUN --iteration 3`) asks for: the one with most of its options."""
    fitting = []
    for form in FORMS:
        command, *options = form.split(" --")
        if list(words[: len(command.split())]) == command.split() and {f"--{option}" for option in options} <= {*words}:
            fitting.append(form)
    return max(fitting, key=len)


class _Untitled(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def about(form: str) -> str:
    """Say what a form is: the first sentence on its type, `rows of ...` for a list."""
    kind = FORMS[form]
    (row,) = get_args(kind) or (kind,)
    sentence = " ".join((row.__doc__ or "").split()).partition(". ")[0].rstrip(".")
    return f"list: {sentence}" if row is not kind else sentence


def schema(form: str) -> dict[str, Any]:
    """Return the JSON Schema of a form."""
    return TypeAdapter(FORMS[form]).json_schema(mode="serialization", schema_generator=_Untitled)
