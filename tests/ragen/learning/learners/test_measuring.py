"""Several objectives measured side by side: by hand, and compared with a learner's results for each alone."""

import numpy as np
import pytest
import torch

from starpo.ragen.config.objective import ObjectiveConfig
from starpo.ragen.config.update import OptimiserConfig, PRMConfig, UpdateConfig
from starpo.ragen.learning.learners.gradient_spread import spread
from starpo.ragen.learning.learners.measuring import (
    MeasuredObjectives,
    able_to_measure,
    gradient_spreads,
    initial_gradient,
    measured_objectives,
)
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.ragen.learning.objectives.advantages import group_relative
from starpo.ragen.learning.objectives.estimates import AdvantageEstimate, AdvantageInputs
from tests.ragen.learning.learners.conftest import change

GRPO = UpdateConfig(advantage="grpo", num_minibatches=1)


def negated(inputs: AdvantageInputs) -> AdvantageEstimate:
    """GRPO's advantages, negated."""
    estimate = group_relative(inputs)
    return AdvantageEstimate(-estimate.advantages_BT, None, -estimate.baselines_B)


OBJECTIVES = {
    "grpo": GRPO,
    "negated": change(GRPO, advantage=f"{__name__}:negated"),
    "gigpo": change(GRPO, advantage="gigpo", aggregation="token_mean"),
    "otb": change(GRPO, advantage="otb"),
    "answer": change(GRPO, advantage_on="answer", loss_on="answer", aggregation="token_mean"),
    "kl": change(GRPO, advantage="reinforce", kl_coefficient=0.3, entropy_coefficient=0.1),
    "ppo": change(GRPO, advantage="gae", should_whiten=True),
    "clip_cov": change(GRPO, surrogate="clip_cov", surrogate_options={"share": 0.5, "low": -9.0, "high": 9.0}),
}


def learner_of(config: UpdateConfig, folder: str, num_threads: int = 1) -> TorchLearner:
    learner = TorchLearner(config, num_threads=num_threads)
    learner.load(folder, "start", folder)
    return learner


@pytest.fixture(scope="module", params=["window", "full"])
def trajectories(request, make_trajectories):
    return make_trajectories(10, context=request.param, num_turns=3)


@pytest.fixture(scope="module")
def measurement(policy_folder, trajectories, context) -> MeasuredObjectives:
    configs = list(OBJECTIVES.values())
    return measured_objectives(learner_of(able_to_measure(configs), policy_folder), trajectories, context, configs)


@pytest.mark.ci
def test_norms_and_cosines_match_single_gradients(measurement, policy_folder, trajectories, context) -> None:
    alone = {
        name: initial_gradient(learner_of(config, policy_folder), trajectories, context)
        for name, config in OBJECTIVES.items()
    }
    measured = dict(zip(OBJECTIVES, measurement.groups, strict=True))
    names = list(OBJECTIVES)
    for name, gradient in alone.items():
        assert measured[name].norm == pytest.approx(float(gradient.norm()), rel=1e-4)
        for other, another in alone.items():
            cosine = torch.nn.functional.cosine_similarity(gradient.double(), another.double(), dim=0)
            assert measurement.cosines[names.index(name), names.index(other)] == pytest.approx(float(cosine), abs=1e-4)


def test_cosine_of_itself_and_its_negative(measurement) -> None:
    names = list(OBJECTIVES)
    assert measurement.cosines.diagonal().tolist() == [1.0] * len(names)
    assert measurement.cosines[names.index("grpo"), names.index("negated")] == pytest.approx(-1.0, abs=1e-6)
    assert np.allclose(measurement.cosines, measurement.cosines.T)


def test_spread_equals_single_bucket_spread(measurement, policy_folder, trajectories, context) -> None:
    groups = list(dict.fromkeys(trajectory.group_id for trajectory in trajectories))
    (alone,) = gradient_spreads(learner_of(GRPO, policy_folder), trajectories, context, [groups])
    measured = measurement.groups[0]
    assert measured.num == alone["task"].num == 3
    assert measured.signal == pytest.approx(alone["task"].signal, rel=1e-3, abs=1e-9)
    assert measured.noise == pytest.approx(alone["task"].noise, rel=1e-3)


@pytest.mark.ci
def test_each_objective_uses_its_prm_beta(policy_folder, make_trajectories, context, tmp_path) -> None:
    """For a stored model, both its next step and the rewards that it gives depend on the objective's beta."""
    eager, trajectories = OptimiserConfig(learning_rate=0.01), make_trajectories(8)
    small, large = (change(GRPO, advantage="istar", prm=PRMConfig(beta=beta, optimiser=eager)) for beta in (0.05, 2.0))
    trained = learner_of(small, policy_folder)
    trained.update(trajectories, context)
    trained.save(str(tmp_path), "once")
    folder = str(tmp_path)
    beside = measured_objectives(
        learner_of(able_to_measure([small, large]), folder), trajectories, context, [small, large]
    )
    for measured, config in zip(beside.groups, (small, large), strict=True):
        alone = float(initial_gradient(learner_of(config, folder), trajectories, context).norm())
        assert measured.norm == pytest.approx(alone, rel=1e-5)
    assert beside.groups[0].norm != pytest.approx(beside.groups[1].norm, rel=1e-3)


def test_zero_gradient_has_nan_cosine(policy_folder, make_trajectories, context) -> None:
    """GRPO's advantage in a group of one is 0."""
    alone = make_trajectories(1)
    learner = learner_of(GRPO, policy_folder)
    measurement = measured_objectives(learner, alone, context, [GRPO, change(GRPO, advantage="reinforce")])
    assert measurement.groups[0].norm == 0.0
    assert np.isnan(measurement.cosines[0]).all()
    assert measurement.cosines[1, 1] == 1.0


@pytest.mark.ci
def test_measuring_is_pure_and_thread_independent(policy_folder, make_trajectories, context, tmp_path) -> None:
    trajectories, configs = make_trajectories(8), [GRPO, OBJECTIVES["gigpo"]]
    plain, other = learner_of(GRPO, policy_folder), learner_of(GRPO, policy_folder, num_threads=3)
    first, again = (measured_objectives(learner, trajectories, context, configs) for learner in (other, plain))
    assert np.array_equal(first.gram, again.gram)
    assert first.groups == again.groups
    results = [learner.update(trajectories, context).metrics for learner in (other, learner_of(GRPO, policy_folder))]
    assert results[0] == results[1]


def test_able_to_measure_covers_all_objectives() -> None:
    configs = [OBJECTIVES["kl"], OBJECTIVES["ppo"], GRPO]
    able = able_to_measure(configs)
    assert able.needs_critic
    assert able.kl_coefficient == 0.3
    assert not able_to_measure([GRPO]).needs_critic
    assert able_to_measure([change(GRPO, learner="deepspeed")]).learner == "torch"
    assert set(ObjectiveConfig.model_fields) < set(type(able).model_fields)


def test_spread_does_not_modify_gradients() -> None:
    gradients = [torch.tensor([2.0, 0.0], dtype=torch.float64), torch.tensor([0.0, 2.0], dtype=torch.float64)]
    assert spread(gradients) == spread(gradients)
    assert [gradient.tolist() for gradient in gradients] == [[2.0, 0.0], [0.0, 2.0]]
