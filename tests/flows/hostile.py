"""Store with hostile text in every field that holds text, and the patterns that no output may contain."""

import json
import re
from itertools import cycle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from starpo.flows.presets import preset
from starpo.ragen.learning.metrics.table import metrics_table
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.manifest import Stage
from tests.examples import example

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
HOSTILE = (
    "\x1b[8mhidden\x1b[2J\x1b]0;owned\x07\x1b]8;;http://evil.example\x1b\\",
    "\x9b8mC1\x9d0;owned\x9c\x85\x90",
    "over\rwritten\b\b\b\x7f\x00\x0b\x0c",
    "line\u2028paragraph\u2029\u00ad\ufeff",
    "\u202eoverride\u202d\u202a\u202b\u202c\u2066isolate\u2067\u2068\u2069\u061c\u200e\u200f",
    "zero\u200bwidth\u200c\u2060\u180e\ufff9",
    "[/b][link=http://evil.example]rich[/link][red]:boom:[/]",
    "[/]",
    "<script>alert(1)</script><img src=x onerror=alert(1)> | `x` ![x](http://evil.example/a.png) [a](javascript:b)",
    "# heading\n- www.evil.example http://evil.example a@evil.example ~~x~~ **y**",
    "variation\ufe01\ufe0f\U000e0141 filler\u3164\u115f\u034f\uffa0",
    f"{FAMILY} family",
    "plain\u200djoined",
    "long" * 20_000,
)
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\u034f\u115f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
RICH_OWN = re.compile(r"\r?\x1b\[(?:\?25[lh]|1A|2K|(?!8m)[0-9;]*m)|\r(?=\x1b\[2K)")
"""Sequences that rich writes itself: colours, and cursor movements of its bars. No hostile text contains them."""

RUN, FAILED, BROKEN = "run", "failed", "broken"
KINDS = ("turns", "rewards", "selection", "samples", "metrics", "episodes")
TEXTS = {
    "turns": ("observation", "response", "think", "answer"),
    "rewards": (),
    "selection": ("reason",),
    "episodes": (),
}


def answered(evil: str) -> str:
    """Return an answer with hostile text that also names the actions parsed in the example's rows."""
    return f"{evil} || Up || Left"


def with_hostile_text(kind: str) -> pa.Table:
    if kind == "metrics":
        names = ["rollout/success_rate", *(f"evaluation/{evil}/success" for evil in HOSTILE)]
        return metrics_table(0, "evaluate:sokoban", dict.fromkeys(names, 0.5))
    table = example(kind)
    for name in TEXTS.get(kind, ()):
        evil = cycle(HOSTILE)
        place = table.schema.get_field_index(name)
        texts = [next(evil) for _ in range(table.num_rows)]
        if name in ("response", "answer"):
            texts = list(map(answered, texts))
        if name == "reason":
            fates = ["kept" if kept else "dropped" for kept in table["kept"].to_pylist()]
            texts = [f"{fate}: {text}" for fate, text in zip(fates, texts, strict=True)]
        values = pa.array(texts, table.schema.field(name).type)
        table = table.set_column(place, table.schema.field(name), values)
    if kind == "turns":
        infos = [json.dumps({evil: evil}) for evil, _ in zip(cycle(HOSTILE), range(table.num_rows), strict=False)]
        table = table.set_column(table.schema.get_field_index("info"), table.schema.field("info"), pa.array(infos))
    return table


def write_hostile_store(folder: Path) -> None:
    """Write a store with three runs, results and leftovers and, beside its folder, a file to import."""
    store = Store(str(folder))
    config = preset("smoke").model_dump(mode="json")
    everything = " ".join(HOSTILE[:-1])
    for run in (RUN, FAILED, BROKEN):
        inputs: dict[str, str] = {}
        store.runs.create(run, flow="starpo", preset="smoke", config=config)
        file = folder / "runs" / run / "run.json"
        record = json.loads(file.read_text())
        record["preset"] = everything
        record["config"][everything] = everything
        record["config"]["evaluation"]["variants"][everything] = record["config"]["environment"]
        record["parameters"] = {everything: everything}
        file.write_text(json.dumps(record))
        for kind in KINDS:
            stage, settings = Stage(name=f"make-{kind}", version=1), {"evil": everything}
            key = stage_key(stage, settings, inputs, 0)
            headline = {f"evaluation/sokoban/success{end}": 0.5 for end in ("", "_low", "_high")}
            if not store.has(kind, key):
                facts = Facts(
                    key=key,
                    stage=stage,
                    settings=settings,
                    inputs=inputs,
                    seed=0,
                    headline={**headline, everything: 1.0},
                    provenance={"machine": everything, everything: everything},
                )
                store.put_table(kind, with_hostile_text(kind), facts)
            names = {"turns": "rollout", "selection": "variance_filter", "episodes": "evaluate:sokoban"}
            store.runs.record_stage(run, 0, names.get(kind, f"{kind} {everything}"), {kind: key})
            inputs = {kind: key}
        store.runs.set_state(
            run, "failed" if run == FAILED else "completed", everything, {"iteration": 1, everything: 1}
        )
    broken = folder / "runs" / BROKEN / "run.json"
    broken.write_text(broken.read_text().replace('"smoke', '"\\ud800'))
    (folder / "runs" / BROKEN / "iterations" / "00000.json").write_text(json.dumps({everything: everything}))
    for kind in ("ablations", "sweeps"):
        (folder / kind / "evil").mkdir(parents=True)
        (folder / kind / "evil" / "result.json").write_text(json.dumps({everything: everything}))
    for place in ("quarantine", "turns", "tmp"):
        (folder / place / "a\x1b[8mb\u202e[red]\x9b").mkdir(parents=True)
        (folder / place / "a\x1b[8mb\u202e[red]\x9b" / "reason\x1b[8m\u202e.txt").write_text(everything)
    imported = folder.parent / "a\x1b[8m\u202e\x9b[red].parquet"
    pq.write_table(pa.table({everything[:500]: [1]}), imported)


def assert_nothing_raw(out: str) -> None:
    bare = RICH_OWN.sub("", out).replace(FAMILY, "")
    match = FORBIDDEN.search(bare)
    assert match is None, f"{match[0]!r} in {bare[max(0, match.start() - 80) : match.end() + 20]!r}"
    assert "\u200d" not in bare
    assert len(out) < 3_000_000
