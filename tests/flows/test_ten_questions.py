"""Ten questions about a stored run with a planted bug, the commands that answer them, and the answers.

The reward has a component that was meant to forgive an honest failure, and pays more for it than success earns.
"""

import json
import re
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

from starpo.flows.presets import preset
from tests.flows.command import ragen
from tests.flows.documents import check

pytestmark = pytest.mark.ci

PRICE = 30.0
REWARD = f"""
import numpy as np


def pays(turns, config):
    has_failed = np.array(turns["truncated"]) & ~np.array(turns["success"])
    return np.where(has_failed, {PRICE}, 0.0)
"""
RUNS = ("good", "bad")
BUG = "forgiveness:pays"
COMPONENTS = ["environment", "format", "forfeit", BUG]
SETTINGS = preset("smoke")
PLAYED = SETTINGS.rollout.num_groups * SETTINGS.rollout.group_size


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Function that runs a command beside a store with the runs 'good' and 'bad'."""
    folder = tmp_path_factory.mktemp("questions")
    (folder / "forgiveness.py").write_text(REWARD)

    def run(*words: str) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(folder))
            done = ragen(*words, cwd=folder, STARPO_STORE=str(folder / "store"), STARPO_STATE_DIR=str(folder / "var"))
        assert done.returncode == 0, done.stderr
        return done.stdout

    train = ("train", "smoke", "--local", "--json", "--run")
    good = check("train", run(*train, "good"))
    bad = check("train", run(*train, "bad", "--set", f"reward.components={json.dumps(COMPONENTS)}"))
    assert [(done["run"], done["state"]) for done in (good, bad)] == [("good", "completed"), ("bad", "completed")]
    return run


def ask(shell: Callable[..., str], form: str, *words: str) -> Any:
    return check(form, shell(*words, "--json"))


def test_which_runs_are_complete(shell: Callable[..., str]) -> None:
    rows = ask(shell, "runs", "runs")
    assert {row["run"]: (row["state"], row["updates"], row["planned"]) for row in rows} == {
        "good": ("completed", 2, 2),
        "bad": ("completed", 2, 2),
    }


def test_what_differs_between_them(shell: Callable[..., str]) -> None:
    differing = ask(shell, "compare", "compare", "good", "bad")["settings"]
    assert list(differing) == ["reward.components"]
    assert BUG in differing["reward.components"]["bad"]
    assert BUG not in differing["reward.components"]["good"]


def test_how_much_was_played(shell: Callable[..., str]) -> None:
    query = "select run, count(*) as n from trajectories where iteration = 0 group by run order by run"
    assert ask(shell, "sql", "sql", "*", query) == [{"run": "bad", "n": PLAYED}, {"run": "good", "n": PLAYED}]


def test_does_success_earn_more(shell: Callable[..., str]) -> None:
    query = """select success, avg(total) as mean from
        (select iteration, trajectory_id, bool_or(success) as success from turns group by all) join
        (select iteration, trajectory_id, sum(total) as total from rewards group by all)
        using (iteration, trajectory_id) group by all"""
    earned = {run: {row["success"]: row["mean"] for row in ask(shell, "sql", "sql", run, query)} for run in RUNS}
    assert earned["good"][True] > earned["good"][False]
    assert earned["bad"][True] < earned["bad"][False]


def test_which_component_pays_for_failure(shell: Callable[..., str]) -> None:
    query = """select component, avg(value) as mean from
        (select iteration, trajectory_id, unnest(component_names) as component, unnest(component_values) as value
        from rewards) where (iteration, trajectory_id) in
        (select (iteration, trajectory_id) from turns group by iteration, trajectory_id having not bool_or(success))
        group by all order by mean desc"""
    first, *others = ask(shell, "sql", "sql", "bad", query)
    assert first["component"] == BUG
    assert all(row["mean"] <= 0.1 for row in others if row["component"] != "environment")


def test_what_did_one_failure_earn(shell: Callable[..., str]) -> None:
    query = """select trajectory_id as id from turns where iteration = 0 group by all having not bool_or(success)
        order by id limit 1"""
    ((failed,),) = (row.values() for row in ask(shell, "sql", "sql", "bad", query))
    given = ("show", "bad", "--iteration", "0", "--trajectory", failed)
    *earlier, last = ask(shell, "show --iteration --trajectory", *given)
    assert last["reward"][BUG] == PRICE
    assert {turn["reward"][BUG] for turn in earlier} <= {0.0}


def test_what_did_the_filter_keep(shell: Callable[..., str]) -> None:
    groups = ask(shell, "show --iteration", "show", "bad", "--iteration", "0")["groups"]
    kept = [group for group in groups if group["kept"]]
    assert len(groups) == SETTINGS.rollout.num_groups
    assert len(kept) <= SETTINGS.filter.keep * SETTINGS.rollout.num_groups
    assert min(group["score"] for group in kept) >= max(group["score"] for group in groups if not group["kept"])


def test_is_it_what_the_settings_give(shell: Callable[..., str]) -> None:
    """It is: a verified run computed what it was told to, which may be the wrong thing."""
    verified = ask(shell, "verify", "verify", "bad", "--stage", "reward", "--stage", "variance_filter")
    assert (verified["outcome"], verified["exit_code"], verified["iterations"]) == ("verified", 0, [0, 1])
    assert {finding["verdict"] for finding in verified["findings"]} == {"same"}


def test_does_it_contradict_itself(shell: Callable[..., str]) -> None:
    """It does not: the sums are those of the parts, whatever these pay for."""
    findings = ask(shell, "audit", "audit", "bad", "rewards", "groups")
    assert [finding["severity"] for finding in findings] == ["note", "note"]


def test_is_one_run_better(shell: Callable[..., str]) -> None:
    """Not shown: the interval over initial states holds 0, and one seed says nothing about settings."""
    first, second = ask(shell, "compare", "compare", "good", "bad")["runs"]
    assert first["difference"] is None
    difference = second["difference"]
    assert difference["num_pairs"] == SETTINGS.evaluation.num_prompts
    assert difference["low"] <= 0 <= difference["high"]


def test_queries_of_the_skill_run(shell: Callable[..., str]) -> None:
    text = (files("starpo.flows.cli") / "templates" / "skill" / "questions.md").read_text(encoding="utf-8")
    queries = re.split(r"\n(?=    select)", "\n".join(line for line in text.splitlines() if line.startswith("    ")))
    assert len(queries) == 7
    for query in queries:
        assert ask(shell, "sql", "sql", "bad", query), query


def test_other_documents_of_a_policy(shell: Callable[..., str]) -> None:
    """Documents that need a policy: a fork with the bug taken out, checkpoints, objectives."""
    given = ("fork", "bad", "--from", "1", "--set", "reward.components=['environment']", "--as", "mended")
    settings = ask(shell, "fork --settings", *given, "--settings")
    assert settings["schedule"] == [{"iteration": 1, "set": {"reward.components": ["environment"]}}]
    assert ask(shell, "fork", *given, "--local")["run"] == "mended"
    assert [row["state"] for row in ask(shell, "checkpoint", "checkpoint", "mended")] == ["kept"] * 3
    assert ask(shell, "checkpoint --iteration", "checkpoint", "mended", "--iteration", "1")["how"] == "kept"
    measured = ask(shell, "objectives", "objectives", "good", "--with", "gspo")
    assert {"run", "gspo"} <= set(measured["objectives"])
