"""`starpo evaluate`: plans, lists, stored results, and errors raised before any work."""

import json
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

from starpo.flows.api.evaluation import as_parameter, carry_out, read_evaluation
from starpo.flows.background import ServerError
from starpo.flows.cli.evaluate import evaluate
from starpo.flows.console.follow import RunFailedError
from starpo.flows.console.terminal import Console
from starpo.flows.outcome import Outcome
from starpo.flows.presets import preset
from starpo.flows.sweep_plan import plan_sweep
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.store import Store
from starpo.ragen.studies.leaderboard import SweepResult
from starpo.ragen.studies.studies import Sweeps
from starpo.ragen.studies.sweep import Sweep
from tests.flows.command import ragen


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Store with a run of the preset `smoke` after its two iterations."""
    store = Store(str(tmp_path / "store"))
    store.runs.create("mine", flow="starpo", preset="smoke", config=preset("smoke").model_dump(mode="json"))
    store.runs.record_stage("mine", 0, "warm_start", {"checkpoint": "0" * 32})
    for iteration in range(2):
        store.runs.record_stage("mine", iteration, "update", {"checkpoint": f"{iteration + 1:032x}"})
    return store


def test_same_command_continues_evaluation(store: Store) -> None:
    def name(**given: object) -> str:
        return read_evaluation(store, ["mine"], [], {}, given).sweep.name

    assert name(seeds=[0, 1]) == name(seeds=[0, 1])
    assert name(seeds=[0, 1]).startswith("mine-")
    assert len({name(seeds=[0, 1]), name(seeds=[0, 2]), name(is_matrix=True), name()}) == 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"temperatures": "warm"}, "--temperatures warm: expected comma-separated numbers, such as 0,1"),
        ({"seeds": "0;1"}, "--seeds 0;1: expected comma-separated whole numbers"),
        ({"iterations": "newest"}, "expected 'last', 'all', 'ends', 'every:10'"),
        ({"prompts": 0}, "num_prompts = 0: should be greater than or equal to 1"),
        ({"set_": ["rollout.temperature=0.1"]}, r"override rollout\.temperature: .*rollout\.engine"),
    ],
)
def test_wrong_options_are_refused(store: Store, given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        evaluate(["mine"], store=store.url, **given)


def test_settings_of_others_leave_runs_alone(store: Store) -> None:
    given = {"rollout.max_response_tokens": 77, "evaluation.temperature": 0.1}
    evaluation = read_evaluation(store, ["mine", "solver"], [], given, {})
    assert evaluation.sweep.overrides == {"evaluation.temperature": 0.1}
    (run,) = evaluation.runs["solver"]
    assert run.config.rollout.max_response_tokens == 77
    with pytest.raises(ConfigError, match=r"override rollout\.max_response_tokens"):
        read_evaluation(store, ["mine"], [], given, {})


def test_server_is_told_whole_environments(store: Store) -> None:
    sweep = read_evaluation(store, ["mine", "random"], ["Bandit"], {}, {"num_prompts": 4}).sweep
    parameter = as_parameter(sweep)
    assert parameter["panels"]["bandit"]["environment"]["type"] == "bandit"
    assert Sweep.make(parameter, "the flow") == sweep


@pytest.mark.parametrize("on", ["Bandit", "BanditRev", "Sokoban", "SokobanNewVocab", "sokoban", "mine"])
def test_company_changes_no_key(store: Store, on: str) -> None:
    def keys(*subjects: str) -> set[str]:
        sweep = read_evaluation(store, subjects, [on], {}, {}).sweep
        return {planned.work.key for planned in plan_sweep(store, sweep.model_copy(update={"subjects": {}})).cells}

    assert keys("mine") == keys("mine", "random") != set()


@pytest.fixture
def unfinished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Server that accepts every deployment and does nothing."""
    monkeypatch.setattr("starpo.flows.console.deployment.register", lambda _: None)
    monkeypatch.setattr("starpo.flows.server.start", lambda *_: "http://127.0.0.1:1/api")
    monkeypatch.setattr("starpo.flows.server.served_environment", lambda *_: None)
    monkeypatch.setattr("prefect.deployments.run_deployment", lambda *_, **__: SimpleNamespace(id=uuid4()))
    monkeypatch.setattr("starpo.flows.console.deployment.follow_run", lambda _, run, *__: run)
    monkeypatch.setattr("starpo.flows.console.studies._follow", lambda *_: Outcome("failed", "nobody works"))


@pytest.mark.usefixtures("unfinished")
def test_server_command_is_short(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    for subject, deployment, written, error in (
        ("random", "starpo/custom", "config=...", ServerError),
        ("mine", "eval-sweep/custom", "sweep=...", RunFailedError),
    ):
        evaluation = read_evaluation(store, [subject], ["Bandit"], {}, {})
        with pytest.raises(error):
            carry_out(store, evaluation, Console(stderr=True, width=10_000), is_local=False)
        shown = capsys.readouterr().err
        (command,) = (line for line in shown.splitlines() if line.startswith("$ "))
        assert command.startswith(f"$ prefect deployment run {deployment} -p {written}")
        assert len(command) < 200


def test_run_without_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(str(tmp_path / "store"))
    store.runs.create("young", flow="starpo", preset="smoke", config=preset("smoke").model_dump(mode="json"))
    evaluate(["young"], dry_run=True, store=store.url)
    assert "run young does not have its first checkpoint yet" in capsys.readouterr().out


def test_server_without_an_address(store: Store) -> None:
    with pytest.raises(ConfigError, match=r"needs openai\.base_url"):
        evaluate(["mine"], set_=["rollout.engine=openai"], store=store.url)


def test_matrix_covers_first_and_last_checkpoint(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(["mine"], matrix=True, dry_run=True, store=store.url, as_json=True)
    assert json.loads(capsys.readouterr().out)["missing_cells"] == [
        "mine@0 sokoban T=0.5 seed=0",
        "mine@2 sokoban T=0.5 seed=0",
    ]


def test_dry_run_counts_cells_without_writing(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(Path(store.url).rglob("*"))
    evaluate(["mine"], iterations="all", seeds="0,1", dry_run=True, store=store.url, as_json=True)
    facts = json.loads(capsys.readouterr().out)
    assert (facts["cells"], facts["stored"], facts["missing"]) == (6, 0, 6)
    assert facts["missing_cells"][0] == "mine@0 sokoban T=0.5 seed=0"
    assert sorted(Path(store.url).rglob("*")) == before


def test_seed_0_keys_equal_training(store: Store) -> None:
    """Compares the stage as the training loop calls it with the sweep's."""
    from starpo.tasks.evaluate import evaluate

    config = preset("smoke")
    settings = config.environment, config.agent, config.rollout, config.evaluation
    of_training = evaluate(2, "sokoban", *settings, f"{2:032x}", lineage=store.url)
    zero, one = plan_sweep(store, Sweep(name="s", runs=["mine"], seeds=[0, 1])).cells
    assert zero.work == of_training
    assert one.work != zero.work


def test_sweep_without_run_is_refused(store: Store) -> None:
    with pytest.raises(ConfigError, match="evaluation s names no run"):
        plan_sweep(store, Sweep(name="s"))


@pytest.fixture
def result(store: Store) -> SweepResult:
    plan = plan_sweep(store, Sweep(name="s", runs=["mine"], iterations="all"))
    return plan.result(store, {planned.cell.label: "EngineError: <b>lost|</b>\nagain" for planned in plan.cells})


def test_a_stored_result_is_shown(store: Store, result: SweepResult, capsys: pytest.CaptureFixture[str]) -> None:
    Sweeps(store.url).save(result)
    evaluate(result="s", store=store.url, as_json=True)
    assert SweepResult.model_validate_json(capsys.readouterr().out) == result
    evaluate(result="s", store=store.url)
    shown = capsys.readouterr().out
    assert "mine@0 sokoban T=0.5 seed=0" in shown
    assert "result.json" in shown
    evaluate(list_=True, store=store.url, as_json=True)
    assert json.loads(capsys.readouterr().out) == [{"evaluation": "s"}]


@pytest.mark.parametrize(
    ("arguments", "code", "output"),
    [
        (("mime", "--dry-run"), 1, "error: 'mime' is no run in "),
        ((), 1, "name who is evaluated: a run"),
        (("mine", "--dry-run", "--json"), 0, '"missing": 1'),
        (("mine", "--dry-run", "--temperatures", ""), 1, "--temperatures : expected comma-separated numbers"),
    ],
)
def test_the_command(store: Store, arguments: tuple[str, ...], code: int, output: str) -> None:
    answer = ragen("evaluate", *arguments, "--store", store.url, COLUMNS="200")
    assert answer.returncode == code
    assert output in answer.stdout + answer.stderr
    assert "Traceback" not in answer.stderr
