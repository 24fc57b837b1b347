import pytest

from starpo.ragen.core.errors import ArtifactDamagedError, StoreError
from starpo.ragen.studies.ablation import AblationResult
from starpo.ragen.studies.grid import Grid
from starpo.ragen.studies.studies import Ablations

GRID = Grid(name="keep", preset="bandit", axes={"filter.keep": [0.5, 1.0]}, seeds=[0, 1, 2])
RESULT = AblationResult(name="keep", grid=GRID, panel="bandit", cells=[])


@pytest.fixture(params=["local", "memory"])
def records(request, tmp_path):
    return Ablations(str(tmp_path) if request.param == "local" else f"memory://{tmp_path.name}/store")


def test_saved_result_is_read(records):
    records.begin(GRID)
    assert records.names() == []
    records.save(RESULT)
    assert records.names() == ["keep"]
    assert records.get("keep") == RESULT


def test_an_unknown_name_suggests_near_ones(records):
    records.save(RESULT)
    with pytest.raises(StoreError, match=r"no result of an ablation 'keeep' .*did you mean 'keep'"):
        records.get("keeep")


def test_damaged_result_says_how_to_mend(tmp_path):
    records = Ablations(str(tmp_path))
    records.save(RESULT)
    (tmp_path / "ablations" / "keep" / "result.json").write_text("{}")
    with pytest.raises(ArtifactDamagedError, match=r"result\.json cannot be read .*run it again"):
        records.get("keep")


def test_a_name_cannot_lead_elsewhere(tmp_path):
    with pytest.raises(StoreError, match=r"'\.\./runs' cannot be a name of an ablation"):
        Ablations(str(tmp_path)).get("../runs")
