"""Reads a log of Inspect with its own reader, and writes JSON lines: a program for the interpreter that has inspect-ai.

    FILE.eval | FILE.json -> inspect_ai.log -> {"log": ...}, then {"sample": ...}, one per sample and epoch

It imports nothing else, so that the environment needs no other package. `inspect_log` starts it and reads the lines.
"""

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

KEPT = {
    "id", "epoch", "choices", "target", "messages", "scores", "metadata", "model_usage", "error", "limit", "uuid",
    "invalidation", "started_at", "completed_at", "total_time", "working_time",
}  # fmt: skip
"""Fields of a sample that are written."""

Key = tuple[Any, int]
"""Id and epoch of a sample."""
Scores = dict[str, Any]
"""Scorer -> value."""

_VERDICTS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def read_log(path: str) -> Iterator[dict[str, Any]]:
    """Yield a line about the log, then one per sample and epoch; `fault` says why the log, or one sample, has none."""
    from inspect_ai.log import EvalLog, read_eval_log

    is_zip = path.endswith(".eval")
    try:
        log = read_eval_log(path, header_only=is_zip)
        newest = EvalLog.model_fields["version"].default
        if log.version > newest:
            raise ValueError(f"it is of version {log.version}, and this inspect-ai reads up to {newest}")
        present, read = _zip_samples(path) if is_zip else _json_samples(log)
    except Exception as error:  # of many kinds: zipfile's, pydantic's, Inspect's own
        yield {"fault": _first_line(error)}
        return
    planned = [(name, epoch) for name in log.eval.dataset.sample_ids or () for epoch in range(1, _epochs(log) + 1)]
    keys = list(dict.fromkeys([*planned, *present]))
    yield {"log": _about(log, list(present.values()))}
    for key in keys:
        place = {"id": key[0], "epoch": key[1]}
        if key not in present:
            yield {**place, "fault": f"is not in the log, whose status is '{log.status}'"}
            continue
        try:
            yield {**place, "sample": _plain(read(key))}
        except Exception as error:  # one sample's: the others can be read
            yield {**place, "fault": f"cannot be read: {_first_line(error)}"}


def score_of(value: Any) -> float | None:
    """Return a score as a number, as Inspect's own metrics read it; None if it is none, or says 'not scored' (NaN)."""
    if isinstance(value, str):
        value = _VERDICTS.get(value, _VERDICTS.get(value.lower(), value))
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def is_verdict(value: Any) -> bool:
    """Whether a score says by itself that an answer is right or wrong, rather than by how much."""
    return isinstance(value, bool) or (isinstance(value, str) and (value in _VERDICTS or value.lower() in _VERDICTS))


def choose_scorer(names: list[str], samples: list[Scores]) -> str | None:
    """Return the first scorer whose scores are all numbers or verdicts, apart from samples that it did not score."""
    for name in dict.fromkeys([*names, *(name for scores in samples for name in scores)]):
        values = [scores[name] for scores in samples if name in scores]
        numbers = [score_of(value) for value in values if str(value).lower() != "nan"]
        if numbers and None not in numbers:
            return name
    return None


def _zip_samples(path: str) -> tuple[dict[Key, Scores], Callable[[Key], Any]]:
    from inspect_ai.log import read_eval_log_sample, read_eval_log_sample_summaries

    def read(key: Key) -> Any:
        skipped = {"store", "timelines"}
        return read_eval_log_sample(path, key[0], key[1], resolve_attachments="core", exclude_fields=skipped)

    return _scores(read_eval_log_sample_summaries(path)), read


def _json_samples(log: Any) -> tuple[dict[Key, Scores], Callable[[Key], Any]]:
    from inspect_ai.log import resolve_sample_attachments

    samples = {(sample.id, sample.epoch): sample for sample in log.samples or ()}
    return _scores(log.samples or ()), lambda key: resolve_sample_attachments(samples[key], "core")


def _scores(samples: Iterable[Any]) -> dict[Key, Scores]:
    return {
        (sample.id, sample.epoch): {name: score.value for name, score in (sample.scores or {}).items()}
        for sample in samples
    }


def _epochs(log: Any) -> int:
    return int(log.eval.config.epochs or 1)


def _about(log: Any, samples: list[Scores]) -> dict[str, Any]:
    """Return what samples have in common, and the scorer whose scores are to be their rewards."""
    scored = log.results.scores if log.results else []
    scorer = choose_scorer([scorer.name for scorer in log.eval.scorers or ()], samples)
    return {
        "status": log.status,
        "error": log.error.message if log.error else None,
        "task": log.eval.task,
        "model": log.eval.model,
        "eval_id": log.eval.eval_id,
        "created": log.eval.created,
        "scorer": scorer,
        "other_scorers": sorted({name for scores in samples for name in scores} - {scorer}),
        "is_accuracy": any(score.name == scorer and "accuracy" in score.metrics for score in scored),
    }


def _plain(sample: Any) -> dict[str, Any]:
    """Return a sample as JSON, with the tools that its conversation was first offered."""
    value = sample.model_dump(mode="json", include=KEPT)
    spoken = {message.id for message in sample.messages if message.role == "assistant" and message.id}
    calls = [event for event in sample.events if event.event == "model" and event.output.choices]
    offered: list[Any] = next((call.tools for call in calls if call.output.choices[0].message.id in spoken), [])
    value["tools"] = [tool.model_dump(mode="json", exclude_none=True, exclude={"options"}) for tool in offered]
    value["stop_reason"] = sample.output.choices[0].stop_reason if sample.output.choices else None
    return value


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _finite(value: Any) -> Any:
    """Return JSON without infinite numbers: they become texts, such as the 'nan' of a sample that was not scored."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    for line in read_log(sys.argv[1]):
        sys.stdout.write(json.dumps(_finite(line)) + "\n")
