"""Every stored column under every mutation of `mutations`, and the checks that detect it.

There are two checks. The rules of a dataset see only its table, so a plausible value in place of the true one passes;
RULES_CANNOT_TELL lists the columns where this can happen, with the reason. `starpo verify` also uses what is stored
with the table: an environment that executes the actions again, a tokenizer that reads the tokens, and stages that
recompute their outputs from their inputs. STANDS lists every mutation that passes both checks.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from starpo.ragen.agents.evaluation.episodes import fold_episodes
from starpo.ragen.agents.policy.save import save_policy
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.engine import Request, Response
from starpo.ragen.agents.rollout.loop import Episode, play
from starpo.ragen.agents.rollout.siblings import take_siblings
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.seeding import dynamics_seed, python_random, sampling_seed
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.learning.distillation.contexts import TeacherContexts
from starpo.ragen.learning.distillation.scoring import LoadedTeacher, top_tokens
from starpo.ragen.learning.distillation.scoring import table as teacher_table
from starpo.ragen.learning.filter.select import select_groups
from starpo.ragen.learning.learners.data.trajectories import assemble
from starpo.ragen.learning.learners.learner import UpdateContext
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.ragen.learning.levels import next_curriculum
from starpo.ragen.learning.metrics.iteration import filter_metrics, reward_metrics, rollout_metrics
from starpo.ragen.learning.metrics.table import metrics_table
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.methods.curricula.settings import PoolsSettings
from starpo.ragen.methods.search.play import play_searching
from starpo.ragen.methods.search.settings import BestOfConfig
from starpo.ragen.runs.verify.actions import episode_differences, turn_differences
from starpo.ragen.runs.verify.texts import text_differences
from starpo.schemas.datasets import DATASETS
from starpo.schemas.models import across_model, has_nulls, row_model
from starpo.schemas.models import obeys as obeys_model
from starpo.schemas.validate import ContractViolation, validate
from tests.examples import example
from tests.schemas.mutations import mutations

SOKOBAN = SokobanSettings(observation="compact", generator="distance", min_solution=1, max_solution=3)
AGENT = AgentConfig(prompt="state", context="window", should_show_reward=False)
SAMPLING = SamplingConfig(max_response_tokens=40)
SMALL = TinyPolicy(hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=16)
FILTER = FilterConfig(keep=0.7)


MUTATED = [kind for kind in DATASETS if kind not in ("images", "turn_images", "episode_turns")]
"""Those of a rollout of texts; pixels are compared with their digests (tests/integration/test_visual_training.py), and
turns of episodes have the rules of turns."""


class Speaker:
    """Session that gives well-formed and malformed responses, depending on the request's seed."""

    def __init__(self, tokenizer: Any, stop_token: int) -> None:
        self._tokenizer, self._stop_token = tokenizer, stop_token

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        return [self._answer(request) for request in requests]

    def close(self) -> None:
        """Do nothing: no resources are held."""

    def _answer(self, request: Request) -> Response:
        random = python_random(request.seed)
        actions = " || ".join(random.choice(["Up", "Down", "Left", "Right"]) for _ in range(random.randint(1, 3)))
        thought = " ".join(random.choice(["push", "walk", "look"]) for _ in range(random.randint(1, 3)))
        text = f"<think>{thought}</think><answer>{actions}</answer>"[: None if random.random() < 0.85 else -6]
        ids = [*self._tokenizer.encode(text, add_special_tokens=False), self._stop_token]
        return Response(ids, [-random.randrange(1, 1024) / 512 for _ in ids], "stop")


class Iteration:
    """Tables of one iteration, from the real stages except for the sampler; checks each against the others."""

    def __init__(self, folder: str) -> None:
        self.tokenizer = make_tokenizer()
        self.contexts = ContextBuilder(self.tokenizer, AGENT, SAMPLING.max_response_tokens)
        save_policy(make_model(SMALL, self.tokenizer), self.tokenizer, folder)
        self.folder = folder
        turns = self.played([f"g{group}" for group in range(4)], 3)
        rewards = compute_rewards(turns, RewardConfig())
        selection = select_groups(turns, rewards, FILTER)
        metrics = self.measured(turns, rewards, selection)
        episodes = fold_episodes(self.played(["a", "b", "c"], 2), "sokoban", 0.5)
        samples, tokens = self.trained(turns, rewards, selection)
        siblings = self.searched()
        outputs = (self.levels(selection), *self.taught(turns))
        measured = (example("credits"), example("credit_estimates"))  # equal to a stage's outputs: any will do
        tables = (turns, siblings, rewards, selection, *outputs, samples, tokens, *measured, metrics, episodes)
        self.tables = dict(zip(MUTATED, tables, strict=True))

    def played(self, group_ids: list[str], size: int) -> pa.Table:
        episodes = [
            Episode(name, member, seed, dynamics_seed(seed, member), sampling_seed(seed, member))
            for seed, name in enumerate(group_ids, start=5)
            for member in range(size)
        ]
        speaker = Speaker(self.tokenizer, self.contexts.stop_token_ids[0])
        return play(speaker, self.contexts, self.tokenizer, SOKOBAN, AGENT, SAMPLING, 2048, episodes)

    def searched(self) -> pa.Table:
        episodes = [Episode("g0", member, 5, member, member) for member in range(3)]
        speaker = Speaker(self.tokenizer, self.contexts.stop_token_ids[0])
        place = (speaker, self.contexts, self.tokenizer, SOKOBAN, AGENT, SAMPLING, 2048, episodes)
        return take_siblings(play_searching(*place, BestOfConfig(num_candidates=3)))[1]

    def levels(self, selection: pa.Table) -> pa.Table:
        bases, config = {"sokoban": 2.0, "harder": 1.0, "hardest": 1.0}, PoolsSettings(window=2)
        return next_curriculum(bases, config, next_curriculum(bases, config, None, []), [selection])

    def measured(self, turns: pa.Table, rewards: pa.Table, selection: pa.Table) -> pa.Table:
        values = rollout_metrics(turns) | reward_metrics(rewards, turns) | filter_metrics(selection)
        return metrics_table(0, "variance_filter", values)

    def trained(self, turns: pa.Table, rewards: pa.Table, selection: pa.Table) -> tuple[pa.Table, pa.Table]:
        learner = TorchLearner(UpdateConfig(advantage="grpo", num_minibatches=1), num_threads=1)
        learner.load(self.folder, "start", None)
        context = UpdateContext(iteration=0, num_iterations=2, seed=5, temperature=1.0, max_response_tokens=40)
        result = learner.update(assemble(turns, rewards, selection), context)
        assert result.trained_tokens is not None
        return result.samples, result.trained_tokens()

    def taught(self, turns: pa.Table) -> tuple[pa.Table, pa.Table]:
        contexts = TeacherContexts(turns)
        scored = LoadedTeacher(self.folder, "start", "float32").score(contexts, 1.0, 8192, top_k=2)
        return teacher_table(contexts, scored), top_tokens(contexts, scored)

    def notices(self, kind: str, table: pa.Table) -> bool:
        """Whether a table contradicts what is stored with it. Derived tables must equal their stages' outputs."""
        if kind == "turns":
            differences = turn_differences(table, SOKOBAN, AGENT)
            texts = text_differences(table, SOKOBAN, self.tokenizer, self.contexts)
            return any(True for sentences in (differences, texts) for _ in sentences)
        if kind == "episodes":
            return any(True for _ in episode_differences(table, SOKOBAN))
        return not table.cast(DATASETS[kind].schema).equals(self.tables[kind])


@pytest.fixture(scope="module")
def iteration(tmp_path_factory: pytest.TempPathFactory) -> Iteration:
    return Iteration(str(tmp_path_factory.mktemp("policy")))


@pytest.fixture(scope="module")
def survivors(iteration: Iteration) -> tuple[Counter[str], list[tuple[str, str, str, pa.Table]]]:
    """Number of mutations tried per dataset, and the mutations that pass its rules."""
    tried: Counter[str] = Counter()
    passed = []
    for kind, table in iteration.tables.items():
        for column, name, mutated in mutations(table, [0, table.num_rows // 2, table.num_rows - 1]):
            tried[kind] += 1
            if obeys(mutated, kind):
                passed.append((kind, column, name, mutated))
    return tried, passed


def obeys(table: pa.Table, kind: str) -> bool:
    """Whether `validate` accepts a table, without its report, which takes longer than the decision."""
    if has_nulls(table, kind):
        return False
    frame = pl.DataFrame(pl.from_arrow(table))
    return obeys_model(frame, row_model(kind)) and obeys_model(frame, across_model(kind))


TWICE = ("empty", "blank", "longer", "shorter", "in capitals", "control characters")
STANDS = {
    ("turns", "dynamics_seed"): ("in Sokoban nothing is left to chance", {"the first row's throughout"}),
    ("turns", "sampling_seed"): ("the engine alone could tell, by sampling again", {"the first row's throughout"}),
    ("turns", "behaviour_logprobs"): (
        "the engine alone could tell, by sampling again",
        {
            "reversed",
            *(f"{place} {what}" for place in ("first", "last") for what in ("0", "-1", "a thousandth more", "+1")),
        },
    ),
    ("turns", "status"): ("what follows a failure was never seen", {"another of the allowed"}),
    ("episodes", "member"): (
        "with nothing left to chance members differ by their sampling alone",
        {"swapped with another row's", "rows shifted by one"},
    ),
    ("episodes", "num_response_tokens"): (
        "tokens are not kept; the engine alone could tell, by playing again",
        {
            "+1",
            "one less",
            "doubled",
            "largest",
            "another row's",
            "swapped with another row's",
            "rows shifted by one",
            "rows reversed",
            "the first row's throughout",
        },
    ),
    ("episodes", "num_format_errors"): ("responses are not parsed again", {"+1"}),
    ("episodes", "status"): ("what follows a failure was never seen", {"another of the allowed"}),
    ("episodes", "responses"): (
        "any text is possible; the engine alone could tell, by playing again",
        {
            "reversed",
            "another row's",
            "swapped with another row's",
            *(f"{place} {what}" for place in ("first", "last") for what in TWICE),
        },
    ),
    ("episodes", "actions"): ("two moves that do nothing may change places", {"reversed"}),
}
"""(dataset, column) -> reason why some mutations pass both checks, and their names. All of them change the content's
digest, and differ from a repetition of the episode with the same engine."""


@pytest.mark.ci
def test_unmodified_tables_pass(iteration: Iteration) -> None:
    for kind, table in iteration.tables.items():
        validate(table, kind)
        assert obeys(table, kind)
        assert not iteration.notices(kind, table)


@pytest.mark.ci
def test_most_mutations_are_noticed(iteration: Iteration, survivors) -> None:
    tried, passed = survivors
    standing = [case for case in passed if not iteration.notices(case[0], case[3])]
    print(f"\n{len(standing)} of {tried.total()} stand")
    survivors_by_column: dict[tuple[str, str], set[str]] = {}
    for kind, column, name, _ in standing:
        survivors_by_column.setdefault((kind, column), set()).add(name)
    assert survivors_by_column == {of: names for of, (_, names) in STANDS.items()}
    assert tried.total() > 2500
    assert len(standing) <= 0.05 * tried.total()


@pytest.mark.ci
def test_the_decision_is_that_of_validate(iteration: Iteration) -> None:
    for kind, table in iteration.tables.items():
        for column, name, mutated in list(mutations(table, [table.num_rows - 1]))[::25]:
            try:
                validate(mutated, kind)
            except ContractViolation:
                assert not obeys(mutated, kind), (kind, column, name)
            else:
                assert obeys(mutated, kind), (kind, column, name)
