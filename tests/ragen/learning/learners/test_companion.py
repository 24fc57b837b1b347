"""A companion of one's own is one file: scored, trained, stored, sized and announced, by every learner."""

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from starpo.flows.presets import preset
from starpo.ragen.agents.policy.tiny import make_model, make_tokenizer
from starpo.ragen.config.deepspeed_learner import DeepSpeedConfig
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.update import LoraConfig, OptimiserConfig, UpdateConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.core.registry import COMPANIONS
from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.learners.learner import UpdateContext
from starpo.ragen.learning.learners.measuring import able_to_measure, measured_objectives, token_logprobs
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.ragen.runs.update import update_code
from starpo.ragen.sizing.architecture import architecture_of
from starpo.ragen.sizing.device import GIB, Machine
from starpo.ragen.sizing.estimate import estimate
from starpo.ragen.sizing.hours import num_passes
from starpo.tasks.update import update
from tests.ragen.learning.learners.conftest import change, loaded

ROOT = Path(__file__).parents[4]
TEACHER = '''# my_teacher.py
import torch

from starpo.ragen.learning.learners.companion import Companion
from starpo.ragen.learning.objectives.columns import ScoredInputs
from starpo.ragen.learning.objectives.estimates import AdvantageEstimate


class Teacher(Companion):
    """The run's first checkpoint, frozen. Its column: log-probs of the student's tokens, nats."""

    name = "teacher"
    is_first_checkpoint = True

    def review(self, column_N, credit):
        return {"update/teacher_logprob": float(column_N.double().mean())}


def distil(inputs: ScoredInputs) -> AdvantageEstimate:
    """Advantage of a token: how much likelier it is under the teacher than under the student."""
    gap_BT = torch.where(inputs.mask_BT, inputs.columns_BT["teacher"] - inputs.logprobs_BT, 0.0)
    return AdvantageEstimate(gap_BT, None, torch.zeros_like(inputs.returns_B))


distil.needs = "my_teacher:Teacher"
'''
TRAINED = '''
from dataclasses import replace

from starpo.ragen.learning.learners.companions.critic import ValueFunction
from starpo.ragen.learning.objectives.gae import gae
from starpo.ragen.methods.implicit_rewards.companion import ImplicitRewards
from starpo.ragen.methods.implicit_rewards.estimator import istar


class Mine(ImplicitRewards):
    """iStar's model under another name."""

    name = "mine"


class Second(ValueFunction):
    """The critic under another name."""

    name = "second"


def before(inputs):
    return istar(replace(inputs, implicit_rewards_BT=inputs.columns_BT["mine"]))


def beside(inputs):
    return gae(replace(inputs, values_BT=inputs.columns_BT["second"]))


before.needs, beside.needs = "groups my_trained:Mine", "my_trained:Second"
'''
WRONG = """
from starpo.ragen.config.companion import CompanionDeclaration, Passes
from starpo.ragen.learning.learners.companion import Companion
from starpo.ragen.learning.objectives.advantages import raw_return


class Policy(Companion):
    name = "policy"


class Nameless(Companion):
    pass


class Declared(CompanionDeclaration):
    name = "declared"


class Short(Companion):
    name = "short"
    is_first_checkpoint = True

    def score(self, inputs, model, old, batches):
        return old.logprobs_N[:-1], {}


class Unborn(Companion):
    name = "unborn"
    passes = Passes(trained_beside=1)


class One(Companion):
    name = "one"


class Another(Companion):
    name = "one"


def needing(name):
    def estimator(inputs):
        return raw_return(inputs)

    estimator.needs = name
    return estimator


policy, nameless, declared, short, unborn = (
    needing(f"my_wrong:{name}") for name in ("Policy", "Nameless", "Declared", "Short", "Unborn")
)
twice, unknown = needing("my_wrong:One my_wrong:Another"), needing("my_wrong:Missing")
"""
ADAMW = OptimiserConfig(learning_rate=1e-3)
SGD_LIKE = OptimiserConfig(learning_rate=1e-2, max_gradient_norm=None)


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The three modules, importable here and in processes started from here."""
    for name, text in (("my_teacher", TEACHER), ("my_trained", TRAINED), ("my_wrong", WRONG)):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture(scope="module")
def teacher_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A policy like `policy_folder`, with other weights."""
    folder, tokenizer = tmp_path_factory.mktemp("teacher"), make_tokenizer()
    sizes = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 24}
    make_model(TinyPolicy(**sizes, seed=4), tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def distilling(**settings: Any) -> UpdateConfig:
    return UpdateConfig(advantage="my_teacher:distil", num_minibatches=1, optimiser=ADAMW, **settings)


def test_page_shows_this_teacher() -> None:
    assert f"```python\n{TEACHER}```" in (ROOT / "docs" / "companions.md").read_text()


def test_column_reaches_estimator_and_metrics(policy_folder, teacher_folder, make_trajectories, context, tmp_path):
    trajectories = make_trajectories(8)
    student_N, teacher_N = (
        token_logprobs(loaded(UpdateConfig(advantage="grpo"), folder), trajectories, context)
        for folder in (policy_folder, teacher_folder)
    )
    learner = loaded(distilling(), policy_folder, teacher_folder)
    result = learner.update(trajectories, context)
    assert result.metrics["update/teacher_logprob"] == pytest.approx(float(teacher_N.mean()), abs=1e-6)
    expected_B = ResponseTokens(trajectories).sums(teacher_N - student_N)
    lengths_B = ResponseTokens(trajectories).lengths_B
    assert result.samples["advantage"].to_pylist() == pytest.approx((expected_B / lengths_B).tolist(), abs=1e-5)
    learner.save(str(tmp_path / "c"), "after")
    assert not (tmp_path / "c" / "teacher.safetensors").exists(), "a frozen one is not stored again"


def test_student_comes_closer_to_its_teacher(policy_folder, teacher_folder, make_trajectories, context):
    """Tokens that the teacher finds likelier than the student does get likelier."""
    trajectories = make_trajectories(8)
    learner = loaded(change(distilling(), optimiser=SGD_LIKE), policy_folder, teacher_folder)
    teacher_N = token_logprobs(loaded(UpdateConfig(advantage="grpo"), teacher_folder), trajectories, context)
    before_N = token_logprobs(learner, trajectories, context)
    learner.update(trajectories, context)
    moved_N = token_logprobs(learner, trajectories, context) - before_N
    assert float(((teacher_N - before_N) * moved_N).sum()) > 0


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=2, alpha=2.0)], ids=["full", "lora"])
def test_lora_reuses_policy_as_frozen_companion(policy_folder, make_trajectories, context, lora):
    if lora is not None:
        pytest.importorskip("peft")
    learner = loaded(distilling(lora=lora), policy_folder, policy_folder)
    assert learner.update(make_trajectories(4), context).metrics["update/advantage_mean"] == 0
    assert (learner._companions._frozen["teacher"].model is None) == (lora is not None)


def test_passes_are_announced(policy_folder, make_trajectories, context):
    calls: list[tuple[int, int]] = []
    learner = loaded(distilling(micro_batch_tokens=40), policy_folder, policy_folder)
    learner.update(make_trajectories(8), context, lambda *progress: calls.append(progress))
    assert {total for _, total in calls} == {calls[-1][0]}


def test_plan_and_stage_count_it():
    settings = {"update.advantage_scale": "none", "update.kl_coefficient": 0.0}
    plain, distilled = (
        preset("smoke", {**settings, "update.advantage": name}) for name in ("reinforce", "my_teacher:distil")
    )
    size = architecture_of(distilled)
    parts = {part.name: part.size_bytes for part in estimate(distilled, size, Machine(80 * GIB, 1)).memory.always}
    assert parts["teacher"] == 4 * size.num_parameters
    ratio = num_passes(distilled) / num_passes(plain)
    trained, scored = distilled.update.num_epochs, 2 * distilled.update.scored_share
    assert ratio == pytest.approx((trained + (scored + 1) / 3) / (trained + scored / 3))
    work = update(distilled, 0, "before", "first", {"turns": "t", "rewards": "r", "selection": "s"})
    assert work.inputs["reference"] == "first"
    assert "reference" not in update(plain, 0, "before", "first", {"turns": "t"}).inputs
    assert update_code(distilled.update)["companion:my_teacher:Teacher"] == "my_teacher:Teacher"


@pytest.mark.parametrize(
    "names",
    [{"prm": "istar", "mine": "my_trained:before"}, {"critic": "gae", "second": "my_trained:beside"}],
    ids=["before", "beside"],
)
def test_trained_companion_is_stored_by_name(policy_folder, make_trajectories, context, tmp_path, names):
    """A built-in model under another name gives the same bytes and metrics, and goes on from them."""
    metrics, states = [], []
    for name, advantage in names.items():
        config = UpdateConfig(advantage=advantage, num_minibatches=2, optimiser=ADAMW)
        folder = policy_folder
        for iteration in range(2):
            learner = loaded(config, folder)
            result = learner.update(make_trajectories(8), dataclasses.replace(context, iteration=iteration))
            folder = str(tmp_path / f"{name}-{iteration}")
            learner.save(folder, "after")
        metrics.append({metric.replace("/second_", "/critic_"): value for metric, value in result.metrics.items()})
        tensors = load_file(Path(folder) / "optimiser.safetensors")
        states.append({tensor.replace(f"{name}/", "it/", 1) for tensor in tensors})
    first, second = (tmp_path / f"{name}-1" for name in names)
    for one, other in (names, ("model", "model")):
        assert (first / f"{one}.safetensors").read_bytes() == (second / f"{other}.safetensors").read_bytes()
    assert states[0] == states[1]
    assert any(name.startswith("it/") for name in states[0])
    assert metrics[0] == metrics[1]


def test_objectives_with_companion_are_measured(policy_folder, make_trajectories, context):
    configs = [UpdateConfig(advantage="grpo"), distilling()]
    learner = TorchLearner(able_to_measure(configs), num_threads=1)
    learner.load(policy_folder, "start", policy_folder)
    measurement = measured_objectives(learner, make_trajectories(4), context, configs)
    assert measurement.gram[0, 0] > 0
    assert measurement.gram[1, 1] == 0, "the teacher is the student"
    with pytest.raises(LearnerError, match="needs the companion 'critic', which the learner does not have"):
        measured_objectives(learner, make_trajectories(4), context, [UpdateConfig(advantage="gae")])


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        ("policy", "'my_wrong:Policy' has name = 'policy'; expected lower-case letters"),
        ("nameless", "'my_wrong:Nameless' has name = None"),
        ("twice", "two companion models of the update have the name 'one'"),
        ("unknown", "has no attribute 'Missing'"),
    ],
)
def test_wrong_declaration_is_a_wrong_setting(estimator: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        UpdateConfig(advantage=f"my_wrong:{estimator}")


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        ("declared", "Declared declares a companion model and is none"),
        ("unborn", "the unborn is trained and does not say how it begins"),
        ("short", r"companion 'short' returned numbers of shape \[\d+\] for \d+ response tokens"),
    ],
)
def test_wrong_companion_is_named(policy_folder, make_trajectories, context, estimator, message):
    with pytest.raises(LearnerError, match=message):
        loaded(UpdateConfig(advantage=f"my_wrong:{estimator}"), policy_folder, policy_folder).update(
            make_trajectories(4), context
        )


def test_registered_companion_is_accepted_by_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMPANIONS, "teacher", "my_teacher:Teacher")
    monkeypatch.setitem(COMPANIONS.packages, "teacher", "teachers 1.0")
    import my_teacher  # type: ignore[import-not-found]

    my_teacher.distil.needs = "teacher critic"
    config = distilling(kl_coefficient=0.1)
    assert [companion.name for companion in config.companions] == ["reference", "critic", "teacher"]
    assert list(config.optimisers) == ["policy", "critic"]
    assert update_code(config)["companion:teacher"] == "my_teacher:Teacher"
    monkeypatch.setitem(COMPANIONS, "tutor", "my_teacher:Teacher")
    monkeypatch.setitem(COMPANIONS.packages, "tutor", "teachers 1.0")
    my_teacher.distil.needs = "tutor"
    with pytest.raises(ValueError, match="companion 'tutor' has name = 'teacher'; expected the name that it is regis"):
        distilling()


def test_first_checkpoint_must_be_given(policy_folder):
    with pytest.raises(LearnerError, match="needs the teacher, but none was given"):
        TorchLearner(distilling()).load(policy_folder, "start", None)


@pytest.fixture
def ranks(modules: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two ranks that can import the modules."""
    pytest.importorskip("deepspeed", reason="deepspeed is not installed (pip install 'starpo[deepspeed]')")
    from starpo.ragen.learning.learners.deepspeed.ranks import RankProcesses

    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    processes = RankProcesses(2)
    yield processes
    processes.close()


@pytest.mark.ci
@pytest.mark.timeout(300)
@pytest.mark.parametrize("stage", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_ranks_agree_with_the_torch_learner(
    policy_folder: str, teacher_folder: str, make_trajectories, context: UpdateContext, ranks: Any, stage: int
) -> None:
    from starpo.ragen.learning.learners.deepspeed.learner import DeepSpeedLearner

    base, trajectories = distilling(micro_batch_tokens=40), make_trajectories(7)
    expected = loaded(base, policy_folder, teacher_folder).update(trajectories, context)
    spread = change(base, learner="deepspeed", deepspeed=DeepSpeedConfig(num_ranks=2, zero_stage=stage))
    team = DeepSpeedLearner(spread, ranks=ranks)
    team.load(policy_folder, "start", teacher_folder)
    result = team.update(trajectories, context)
    assert list(result.metrics) == list(expected.metrics)
    assert result.metrics == pytest.approx(expected.metrics, rel=1e-4, abs=1e-5)
    torch.testing.assert_close(
        torch.tensor(result.samples["advantage"].to_pylist()),
        torch.tensor(expected.samples["advantage"].to_pylist()),
        rtol=1e-4,
        atol=1e-5,
    )
