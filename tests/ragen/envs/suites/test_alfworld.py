"""TextWorld games: a kitchen in PDDL like ALFWorld's games, and a game made by TextWorld and compiled by Inform 7."""

import json
import sys

import pytest

pytest.importorskip("textworld", reason="pip install 'starpo[alfworld]'")
pytest.importorskip("fast_downward", reason="pip install 'starpo[alfworld]'")

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs import make
from starpo.ragen.envs.check import check
from starpo.ragen.envs.suites.alfworld import AlfworldSettings

DOMAIN = """
(define (domain kitchen)
 (:requirements :adl :typing)
 (:types agent location receptacle object)
 (:predicates (at ?a - agent ?l - location) (stands ?r - receptacle ?l - location)
  (in ?o - object ?r - receptacle) (holds ?a - agent ?o - object) (busy ?a - agent) (seen ?a - agent))
 (:action look :parameters (?a - agent ?l - location) :precondition (and (at ?a ?l)) :effect (and (seen ?a)))
 (:action go :parameters (?a - agent ?from - location ?to - location ?r - receptacle)
  :precondition (and (at ?a ?from) (stands ?r ?to))
  :effect (and (not (at ?a ?from)) (at ?a ?to)))
 (:action take :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
  :precondition (and (at ?a ?l) (stands ?r ?l) (in ?o ?r) (not (busy ?a)))
  :effect (and (not (in ?o ?r)) (holds ?a ?o) (busy ?a)))
 (:action move :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
  :precondition (and (at ?a ?l) (stands ?r ?l) (holds ?a ?o))
  :effect (and (in ?o ?r) (not (holds ?a ?o)) (not (busy ?a)))))
"""
PROBLEM = """
(define (problem one) (:domain kitchen)
 (:objects me - agent l0 l1 l2 l3 - location
  GOAL_bar__minus_01_dot_20 Table_bar__plus_00_dot_10 Table_bar__plus_02_dot_10 - receptacle
  Mug_bar__plus_00_dot_10 Mug_bar__plus_00_dot_20 Apple_bar__plus_00_dot_20 - object)
 (:init (at me l0)
  (stands GOAL_bar__minus_01_dot_20 l1) (stands Table_bar__plus_00_dot_10 l2) (stands Table_bar__plus_02_dot_10 l3)
  (in Mug_bar__plus_00_dot_10 Table_bar__plus_00_dot_10) (in Apple_bar__plus_00_dot_20 Table_bar__plus_00_dot_10)
  (in Mug_bar__plus_00_dot_20 Table_bar__plus_02_dot_10))
 (:goal (exists (?o - object) (in ?o GOAL_bar__minus_01_dot_20))))
"""
GRAMMAR = '''
grammar :: """
 {
  "intro": [{"rhs": "#seen#\\n\\nYour task is to: put a mug on the goal."}],
  "seen": [{"rhs": "You see [{o.name | stands(o:receptacle, l:location)}]."}],
  "went": [{"rhs": "You arrive at {r.name}. On it are [{o.name | in(o:object, r:receptacle)}]."}],
  "took": [{"rhs": "You pick up the {o.name} from the {r.name}."}],
  "moved": [{"rhs": "You move the {o.name} to the {r.name}."}],
  "list_empty": [{"rhs": "nothing"}], "list_separator": [{"rhs": ", "}], "list_last_separator": [{"rhs": ", and "}]
 }
""";
action look { template :: "look"; feedback :: "#seen#"; }
action go { template :: "go to {r}"; feedback :: "#went#"; }
action take { template :: "take {o} from {r}"; feedback :: "#took#"; }
action move { template :: "move {o} to {r}"; feedback :: "#moved#"; }
'''
TASK = "Your task is to: put a mug on the {}."


def kitchen(folder, *goals, **changed):
    """Settings for a folder with one kitchen for each place that a mug must be put on."""
    for number, goal in enumerate(goals):
        game = {
            "pddl_domain": DOMAIN,
            "grammar": GRAMMAR.replace("goal", goal),
            "pddl_problem": PROBLEM.replace("GOAL", goal),
            "solvable": True,
        }
        path = folder / f"trial_{number}" / "game.tw-pddl"
        path.parent.mkdir()
        path.write_text(json.dumps(game))
    return AlfworldSettings(task=str(folder), **changed)


def test_commands_win_in_any_case(tmp_path):
    environment = make(kitchen(tmp_path, "shelf", should_list_admissible=True))
    arguments = list(sys.argv)
    observation, _ = environment.reset(seed=0)
    assert sys.argv == arguments
    assert observation == (
        f"You see shelf 1, table 2, and table 1.\n\n{TASK.format('shelf')}\n"
        "Admissible: go to shelf 1, go to table 1, go to table 2, look"
    )
    assert environment.actions == ("go to shelf 1", "go to table 1", "go to table 2", "look")
    observation, reward, terminated, _, info = environment.step("Go to TABLE 2")
    assert observation.splitlines()[:2] == [
        TASK.format("shelf"),
        "You arrive at table 2. On it are apple 1, and mug 2.",
    ]
    assert (reward, terminated, info["effective"]) == (0.0, False, True)
    for command in ("take mug 2 from table 2", "go to shelf 1"):
        environment.step(command)
    observation, reward, terminated, _, info = environment.step("move mug 2 to shelf 1")
    assert observation == f"{TASK.format('shelf')}\nYou move the mug 2 to the shelf 1."
    assert (reward, terminated, info["is_success"]) == (10.0, True, True)
    assert environment.actions == ()


def test_unknown_command_changes_nothing(tmp_path):
    environment = make(kitchen(tmp_path, "shelf", should_repeat_task=False))
    environment.reset(seed=0)
    before = environment.state_digest()
    observation, reward, _, _, info = environment.step("fly to the moon")
    assert (observation, reward, info["effective"]) == ("Nothing happens.", 0.0, False)
    assert environment.state_digest() == before
    with pytest.raises(EnvironmentFault, match="is not an action"):
        environment.step("go\nto table 1")


def test_seed_chooses_the_game(tmp_path):
    settings = kitchen(tmp_path, "shelf", "sofa")
    left, right = make(settings), make(settings)
    assert left.num_initial_states == 2
    digests = {left.reset(seed=seed)[0]: left.state_digest() for seed in range(6)}
    assert len(set(digests.values())) == len(digests) == 2
    left.reset(seed=0)
    right.reset(seed=0)
    for command in ("look", "go to table 1", "go to table 2"):
        left.step(command)
    for command in ("go to table 2", "look"):
        right.step(command)
    assert left.state_digest() == right.state_digest()
    assert left.render() != right.render()


def test_clone_has_same_state_and_diverges(tmp_path):
    environment = make(kitchen(tmp_path, "shelf"))
    environment.reset(seed=0)
    environment.step("go to table 2")
    copy = environment.clone(1)
    assert copy.state_digest() == environment.state_digest()
    copy.step("take apple 1 from table 2")
    assert copy.state_digest() != environment.state_digest()
    assert "take apple 1 from table 2" in environment.actions


def test_damaged_game_error_names_its_path(tmp_path):
    settings = kitchen(tmp_path, "shelf")
    path = tmp_path / "trial_0" / "game.tw-pddl"
    path.write_text(path.read_text().replace("(:goal", "(:gaol"))
    with pytest.raises(EnvironmentFault, match=r"game\.tw-pddl cannot be played"):
        make(settings).reset(seed=0)


@pytest.mark.thorough
def test_environment_passes_check_across_processes(tmp_path):
    assert check(kitchen(tmp_path, "shelf", "sofa")) == []


@pytest.mark.thorough
def test_a_game_that_textworld_makes(tmp_path):
    import textworld

    options = textworld.GameOptions()
    options.seeds = 1
    options.nb_rooms, options.nb_objects, options.quest_length = 2, 3, 2
    options.path = str(tmp_path / "made.z8")
    textworld.make(options)
    walkthrough = json.loads((tmp_path / "made.json").read_text())["metadata"]["walkthrough"]
    environment = make(AlfworldSettings(task=str(tmp_path)))
    observation, _ = environment.reset(seed=0)
    assert "$$" not in observation
    assert ">" not in observation
    for number, command in enumerate(walkthrough, 1):
        assert command in environment.actions
        _, reward, terminated, _, _ = environment.step(command)
        assert (reward, terminated) == ((10.0, True) if number == len(walkthrough) else (0.0, False))
    assert environment.is_success
