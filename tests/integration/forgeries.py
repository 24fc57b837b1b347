"""Forgeries of a stored run, each made self-consistent: what is changed, and which stages to verify to find it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from starpo.ragen.store import Store
from starpo.schemas.manifest import MANIFEST_NAME, Stage
from tests.integration.forging import (
    RUN,
    Records,
    Rows,
    artifact,
    change_records,
    change_run,
    claim,
    edit_json,
    forge,
    manifest_of,
    read_records,
    rekey,
    reseal,
    reseal_folder,
    tensors,
)  # fmt: skip

EVALUATE = "evaluate:sokoban"
RECORD = {"stages": ["reward"], "last": 0}
"""For forgeries of the record itself, which need no stages to be recomputed."""
NO_STATE = "0" * 64


def records(change: Callable[[Records], object]) -> Callable[[Path], None]:
    return lambda folder: change_records(folder, change)


def run(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return lambda folder: change_run(folder, change)


def rows(iteration: int, stage: str, kind: str, change: Callable[..., object], **fields: Any) -> Callable[[Path], None]:
    return lambda folder: forge(artifact(folder, iteration, stage, kind), change, **fields)


def moved(stage: str, source: int, target: int) -> Callable[[Path], None]:
    return records(lambda content: content[target].update({stage: content[source][stage]}))


def old_torch(forgery: Callable[[Path], None], iteration: int, stage: str, library: str = "torch") -> Callable:
    """Forgery that also claims that another version of a library made the artifacts."""

    def forged(folder: Path) -> None:
        forgery(folder)
        for kind in read_records(folder)[iteration][stage]:
            claim(artifact(folder, iteration, stage, kind), "versions", library, "1.0")

    return forged


def checkpoint(
    change: Callable[[Path], object], *, stage: str = "update", should_fit: bool = True
) -> Callable[[Path], None]:
    """Forgery of a checkpoint's files; manifest and SHA-256 are updated, with `should_fit` the content digest too."""

    def forged(folder: Path) -> None:
        place = artifact(folder, 0, stage, "checkpoint")
        change(place)
        if should_fit:
            reseal_folder(place)
        else:
            reseal(place)

    return forged


def all_values(name: str, value: object) -> Callable[[list[dict[str, Any]]], None]:
    return lambda content: [row.update({name: value}) for row in content]  # type: ignore[func-returns-value,return-value]


def first_row(**values: object) -> Callable[[list[dict[str, Any]]], None]:
    return lambda content: content[0].update(values)


def value_of(name: str, value: float) -> Callable[[list[dict[str, Any]]], None]:
    return lambda content: next(row for row in content if row["name"] == name).update(value=value)


def more_logprob(content: list[dict[str, Any]]) -> None:
    content[0]["behaviour_logprobs"] = [value - 0.5 for value in content[0]["behaviour_logprobs"]]


def other_response(content: list[dict[str, Any]]) -> None:
    row = next(row for row in content if row["response_ids"])
    row["response"] += "!"


def noise(place: Path) -> None:
    tensors(place, "model.safetensors", lambda values: next(iter(values.values())).add_(0.01))


def optimiser_times_three(place: Path) -> None:
    def change(values: dict[str, torch.Tensor]) -> None:
        for tensor in values.values():
            if tensor.is_floating_point():
                tensor.mul_(3)

    tensors(place, next(file.name for file in place.glob("*optimiser*.safetensors")), change)


def trainer(place: Path) -> None:
    edit_json(place / "trainer.json", lambda content: content.update(forged=1))


def extra(place: Path) -> None:
    (place / "pytorch_model.bin").write_bytes(b"0" * 64)


def truncated_and_failed(folder: Path) -> None:
    change_records(folder, lambda content: (content.pop(2), content[1].pop("update")))
    edit_json(folder / "runs" / RUN / "state.json", lambda state: state.update(status="failed", head=""))


def untouched_seals(change: Callable[[dict[str, Any]], object], name: str) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / "runs" / RUN / name, change)


def no_torch_difference_but_seconds(folder: Path) -> None:
    checkpoint(noise, stage="warm_start")(folder)
    place = artifact(folder, 0, "warm_start", "checkpoint")
    edit_json(place / MANIFEST_NAME, lambda manifest: manifest["provenance"].update(seconds=1000.0))


def evaluation_of_another_checkpoint(folder: Path) -> None:
    """Record the first evaluation as the last iteration's, with its iteration changed to fit but not its checkpoint."""
    change_records(folder, lambda content: content[2].update({EVALUATE: content[0][EVALUATE]}))
    settings = manifest_of(artifact(folder, 2, EVALUATE, "episodes")).settings
    rekey(folder, 2, EVALUATE, settings={**settings, "iteration": 2})


def evaluation_in_the_place_of_another(folder: Path) -> None:
    """Do the same with its checkpoint changed to fit too, so that it has the key of the last evaluation."""
    last = manifest_of(artifact(folder, 2, EVALUATE, "episodes"))
    change_records(folder, lambda content: content[2].update({EVALUATE: content[0][EVALUATE]}))
    rekey(folder, 2, EVALUATE, settings=last.settings, inputs=last.inputs)


def reward_of_another_version(folder: Path) -> None:
    rows(0, "reward", "rewards", all_values("normalised_return", 9.0))(folder)
    rekey(folder, 0, "reward", stage=Stage(name="reward", version=9))


def reward_with_a_setting_more(folder: Path) -> None:
    rows(0, "reward", "rewards", all_values("normalised_return", 9.0))(folder)
    settings = manifest_of(artifact(folder, 0, "reward", "rewards")).settings
    rekey(folder, 0, "reward", settings={**settings, "unheard_of": 1})


def negated_advantages(content: Rows) -> None:
    for row in content:
        row["advantage"] = -row["advantage"]


def update_metrics_and_headline(folder: Path) -> None:
    name = "update/policy_loss"
    forge(artifact(folder, 0, "update", "metrics"), value_of(name, 0.25))
    place = artifact(folder, 0, "update", "checkpoint")
    reseal(place, headline={**manifest_of(place).headline, name: 0.25})


def evaluation_metrics_and_headlines(folder: Path) -> None:
    name = "evaluation/sokoban/success"
    forge(artifact(folder, 2, EVALUATE, "metrics"), value_of(name, 0.875))
    for kind in ("episodes", "metrics"):
        place = artifact(folder, 2, EVALUATE, kind)
        reseal(place, headline={**manifest_of(place).headline, name: 0.875})


def dropped_with_another_digest(folder: Path) -> None:
    key = artifact(folder, 0, "update", "checkpoint").name
    reseal(folder / "checkpoint" / key, content_digest=NO_STATE)
    Store(str(folder)).drop("checkpoint", key)


def headline(iteration: int, stage: str, kind: str, name: str, value: float) -> Callable[[Path], None]:
    def forged(folder: Path) -> None:
        place = artifact(folder, iteration, stage, kind)
        reseal(place, headline={**manifest_of(place).headline, name: value})

    return forged


UPDATE = {"stages": ["update"], "last": 0}
WARM_START = {"stages": ["warm_start"]}
REWARD = {"stages": ["reward"], "last": 0}
FILTER = {"stages": ["variance_filter"], "last": 0}
DIAGNOSE = {"stages": ["diagnose"], "last": 0}
ROLLOUT = {"stages": ["rollout"], "last": 0}
LAST = {"stages": ["evaluate"], "first": 2}

FOUND: dict[str, tuple[Callable[[Path], Any], dict[str, Any], str]] = {
    # records, all resealed
    "the first evaluation in the last place": (moved(EVALUATE, 0, 2), RECORD, "2 evaluate:sokoban place different"),
    "the last evaluation in the first place": (moved(EVALUATE, 2, 0), RECORD, "0 evaluate:sokoban place different"),
    "the second evaluation in the last place": (moved(EVALUATE, 1, 2), RECORD, "2 evaluate:sokoban place different"),
    "the first rollout twice": (moved("rollout", 0, 1), RECORD, "1 rollout place different"),
    "the first rewards twice": (moved("reward", 0, 1), RECORD, "1 reward place different"),
    "the first selection twice": (moved("variance_filter", 0, 1), RECORD, "1 variance_filter place different"),
    "the first update twice": (moved("update", 0, 1), RECORD, "1 update place different"),
    "the second update first": (moved("update", 1, 0), RECORD, "0 update place different"),
    "the last evaluation taken out": (
        records(lambda content: content[2].pop(EVALUATE)), RECORD, "2 evaluate:sokoban place different"),
    "the second evaluation taken out": (
        records(lambda content: content[1].pop(EVALUATE)), RECORD, "1 evaluate:sokoban place different"),
    "the last update taken out": (
        records(lambda content: content[1].pop("update")), RECORD, "1 update place different"),
    "the second rewards taken out": (
        records(lambda content: content[1].pop("reward")), RECORD, "1 reward place different"),
    "an iteration taken out": (records(lambda content: content.pop(1)), RECORD, "1 evaluate:sokoban place different"),
    "the last iterations taken out": (
        records(lambda content: (content.pop(1), content.pop(2))), RECORD, "1 evaluate:sokoban place different"),
    "an evaluation of another cell": (
        records(lambda content: content[2].update({"evaluate:b": content[2][EVALUATE]})),
        RECORD, "2 evaluate:b place different"),
    "an iteration more": (
        records(lambda content: content.update({3: content[2]})), RECORD, "3 evaluate:sokoban place different"),
    "an update as warm start": (
        records(lambda content: content[0]["warm_start"].update(checkpoint=content[1]["update"]["checkpoint"])),
        RECORD, "0 warm_start place different"),
    "episodes of one evaluation and metrics of another": (
        records(lambda content: content[2][EVALUATE].update(metrics=content[0][EVALUATE]["metrics"])),
        RECORD, "2 evaluate:sokoban place different"),
    "an update without samples": (
        records(lambda content: content[0]["update"].pop("samples")), RECORD, "0 update place different"),
    "a key of nothing": (
        records(lambda content: content[1]["reward"].update(rewards="0" * 32)), RECORD, "1 reward place different"),
    "another seed": (run(lambda content: content["config"].update(seed=5)), RECORD, "0 rollout place different"),
    "another filter": (
        run(lambda content: content["config"]["filter"].update(keep=0.75)),
        RECORD, "0 variance_filter place different"),
    "fewer iterations": (
        run(lambda content: content["config"].update(iterations=1)), RECORD, "0 update place different"),
    "more panels": (
        run(lambda content: content["config"]["evaluation"].update(
            variants={"b": content["config"]["environment"]})), RECORD, "0 evaluate:b place different"),
    "another evaluation's work under a key of its own": (
        evaluation_of_another_checkpoint, RECORD, "2 evaluate:sokoban place different"),
    # records whose seals do not fit
    "another preset": (
        untouched_seals(lambda content: content.update(preset="sokoban-paper"), "run.json"),
        RECORD, "0 record seals different"),
    "another date": (
        untouched_seals(lambda content: content.update(created="2020-01-01T00:00:00Z"), "run.json"),
        RECORD, "0 record seals different"),
    "a record written again": (
        untouched_seals(lambda content: None, "iterations/00001.json"), RECORD, "0 record seals different"),
    "the last record written again": (
        untouched_seals(lambda content: None, "iterations/00002.json"), RECORD, "0 record seals different"),
    "another head": (
        untouched_seals(lambda content: content.update(head=NO_STATE), "state.json"),
        RECORD, "0 record seals different"),
    # checkpoints
    "optimiser times three": (checkpoint(optimiser_times_three), UPDATE, "0 update checkpoint different"),
    "optimiser times three, digest left": (
        checkpoint(optimiser_times_three, should_fit=False), UPDATE, "0 update checkpoint damaged"),
    "trainer.json": (checkpoint(trainer), UPDATE, "0 update checkpoint different"),
    "trainer.json, digest left": (checkpoint(trainer, should_fit=False), UPDATE, "0 update checkpoint damaged"),
    "noise on weights": (checkpoint(noise), UPDATE, "0 update checkpoint different"),
    "noise on weights, digest left": (checkpoint(noise, should_fit=False), UPDATE, "0 update checkpoint damaged"),
    "a file that no manifest names": (checkpoint(extra, should_fit=False), UPDATE, "0 update checkpoint damaged"),
    "a file more": (checkpoint(extra), UPDATE, "0 update checkpoint different"),
    "a file less": (
        checkpoint(lambda place: (place / "trainer.json").unlink()), UPDATE, "0 update checkpoint different"),
    "noise on the first weights": (
        checkpoint(noise, stage="warm_start"), WARM_START, "0 warm_start checkpoint different"),
    "the first weights, an input, digest left": (
        checkpoint(noise, stage="warm_start", should_fit=False), UPDATE, "0 update checkpoint damaged"),
    "a file more in an input": (
        checkpoint(extra, stage="warm_start", should_fit=False), UPDATE, "0 update checkpoint damaged"),
    "another digest of a dropped checkpoint": (dropped_with_another_digest, UPDATE, "0 update checkpoint damaged"),
    "a file beside rows": (
        lambda folder: extra(artifact(folder, 0, "reward", "rewards")), REWARD, "0 reward rewards damaged"),
    # rows
    "rewards": (
        rows(0, "reward", "rewards", all_values("normalised_return", 9.0)), REWARD, "0 reward rewards different"),
    "rewards of another torch": (
        old_torch(rows(0, "reward", "rewards", all_values("normalised_return", 9.0)), 0, "reward"),
        REWARD, "0 reward rewards different"),
    "rewards of another numpy": (
        old_torch(rows(0, "reward", "rewards", all_values("normalised_return", 9.0)), 0, "reward", "numpy"),
        REWARD, "0 reward rewards different"),
    "rewards that need not be the same": (
        rows(0, "reward", "rewards", all_values("normalised_return", 9.0), is_deterministic=False),
        REWARD, "0 reward rewards different"),
    "a selection": (
        rows(0, "variance_filter", "selection", first_row(kept=True, reason="kept")),
        FILTER, "0 variance_filter selection different"),
    "a selection of another polars": (
        old_torch(rows(0, "variance_filter", "selection", first_row(kept=True, reason="kept")), 0, "variance_filter",
                  "polars"), FILTER, "0 variance_filter selection different"),
    "metrics of a rollout of another torch": (
        old_torch(rows(0, "diagnose", "metrics", value_of("rollout/success_rate", 1.0)), 0, "diagnose"),
        DIAGNOSE, "0 diagnose metrics different"),
    "a state of another torch": (
        old_torch(rows(0, "rollout", "turns", first_row(state_digest="f" * 16)), 0, "rollout"),
        ROLLOUT, "0 rollout actions different"),
    "a response of another torch": (
        old_torch(rows(0, "rollout", "turns", other_response), 0, "rollout"), ROLLOUT, "0 rollout texts different"),
    "log-probs": (rows(0, "rollout", "turns", more_logprob), ROLLOUT, "0 rollout turns different"),
    "turns, an input, digest left": (
        lambda folder: (rows(0, "rollout", "turns", more_logprob)(folder),
                        reseal(artifact(folder, 0, "rollout", "turns"), content_digest=NO_STATE)),
        REWARD, "0 reward rewards damaged"),
    "metrics of an evaluation of another torch": (
        old_torch(rows(2, EVALUATE, "metrics", value_of("evaluation/sokoban/success", 0.875)), 2, EVALUATE),
        LAST, "2 evaluate:sokoban numbers different"),
    "metrics and headlines of an evaluation of another torch": (
        old_torch(evaluation_metrics_and_headlines, 2, EVALUATE), LAST, "2 evaluate:sokoban episodes different"),
    "episodes of another torch": (
        old_torch(rows(2, EVALUATE, "episodes", lambda content: content[0].update(success=not content[0]["success"])),
                  2, EVALUATE), LAST, "2 evaluate:sokoban actions different"),
    "an evaluation in the place of another": (
        evaluation_in_the_place_of_another, LAST, "2 evaluate:sokoban episode_turns different"),
    "samples": (rows(0, "update", "samples", all_values("advantage", 9.0)), UPDATE, "0 update samples different"),
    "advantages of another torch, negated": (
        old_torch(rows(0, "update", "samples", negated_advantages), 0, "update"),
        UPDATE, "0 update advantages different"),
    "metrics of an update of another torch": (
        old_torch(rows(0, "update", "metrics", value_of("update/policy_loss", 0.25)), 0, "update"),
        UPDATE, "0 update numbers different"),
    "metrics and headline of an update of another torch": (
        old_torch(update_metrics_and_headline, 0, "update"), UPDATE, "0 update checkpoint different"),
    # manifests
    "rewards of another version of the stage": (reward_of_another_version, REWARD, "0 variance_filter place different"),
    "rewards by a setting that nobody knows": (reward_with_a_setting_more, REWARD, "0 variance_filter place different"),
    "a headline of a rollout of another torch": (
        old_torch(headline(0, "rollout", "turns", "num_successful", 15), 0, "rollout"),
        ROLLOUT, "0 rollout turns different"),
    "a headline less": (
        lambda folder: reseal(artifact(folder, 0, "variance_filter", "selection"), headline={}),
        FILTER, "0 variance_filter selection different"),
    "a number of rows": (
        lambda folder: reseal(artifact(folder, 0, "reward", "rewards"), num_rows=1),
        REWARD, "0 reward rewards damaged"),
    "a seed": (
        lambda folder: reseal(artifact(folder, 0, "rollout", "turns"), seed=5), ROLLOUT, "0 rollout turns damaged"),
    "inputs": (
        lambda folder: reseal(artifact(folder, 0, "reward", "rewards"), inputs={"turns": "0" * 32}),
        REWARD, "0 reward rewards damaged"),
}  # fmt: skip
"""Name -> forgery, options that find it, and the first fault."""

NOT_SHOWN: dict[str, tuple[Callable[[Path], Any], dict[str, Any]]] = {
    "a run said to have failed": (truncated_and_failed, RECORD),
    "another flow": (run(lambda content: content.update(flow="elsewhere")), RECORD),
    "log-probs of another torch": (old_torch(rows(0, "rollout", "turns", more_logprob), 0, "rollout"), ROLLOUT),
    "log-probs that need not be the same": (
        rows(0, "rollout", "turns", more_logprob, is_deterministic=False), ROLLOUT),
    "samples of another torch": (
        old_torch(rows(0, "update", "samples", all_values("entropy", 0.5)), 0, "update"), UPDATE),
}  # fmt: skip
