"""Evaluated episodes as the page shows them."""

import pyarrow as pa

from starpo.ragen.evidence.reading import Place, Reader
from starpo.ragen.evidence.report.evaluations import read_evaluation
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage
from tests.examples import example


def test_failed_episode_is_in_no_statistic(tmp_path) -> None:
    store = Store(str(tmp_path / "store"))
    good = example("episodes").to_pylist()[0] | {"success": True, "status": "ok"}
    failed = good | {"env_seed": good["env_seed"] + 1, "success": False, "status": "env_error"}
    for rows, key, success in (([good, failed], "a" * 32, 1.0), ([failed], "b" * 32, None)):
        table = pa.Table.from_pylist(rows, schema=example("episodes").schema)
        stage = Stage(name="evaluate", version=3)
        manifest = store.put_table("episodes", table, Facts(key=key, stage=stage, settings={}, inputs={}, seed=0))
        batch = read_evaluation(Reader(store), Place(0, "evaluate:sokoban", "episodes", key), manifest)
        assert batch is not None
        (group,) = batch.groups
        assert [member["valid"] for member in group["members"]] == [row is good for row in rows]
        assert group["success"] == success
