"""checkpoint, turns -> teacher_logprobs, metrics: what a teacher says of the tokens that the policy sampled."""

from collections.abc import Iterator
from functools import partial

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.teachers import TeacherSettings
from starpo.ragen.core.registry import PARSER
from starpo.ragen.envs.make import environment_code, environment_type
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.schemas.manifest import Stage

STAGE = Stage(name="teacher", version=1)


def teacher(config: StarPOConfig, iteration: int, checkpoint: str, turns: str, attempt: int = 0) -> Work:
    """Let a teacher score the responses of a rollout, whatever the filter keeps of it.

    Iterations and runs that share rollout, teacher and hints share what it says.

    Args:
        config: Settings of the iteration, with a teacher.
        iteration: Updates completed before it, for the metrics.
        checkpoint: Key of the teacher's checkpoint.
        turns: Key of the turns.
        attempt: Index of that rollout within the iteration.

    Raises:
        LearnerError: When carried out, if the teacher fails or takes longer than its limit.
    """
    settings = config.teacher
    assert settings is not None
    has_hint = settings.hint != "none"
    values = {
        "iteration": iteration,
        "temperature": config.rollout.temperature,
        "micro_batch_tokens": config.update.micro_batch_tokens,
        "dtype": settings.dtype,
        **({"hint": settings.hint, "hint_text": settings.hint_text} if has_hint else {}),
    }
    code = {}
    if settings.hint == "plan":
        player = environment_type(config.environment.type).demonstrator
        code = {**environment_code(config.environment), "demonstrator": player, "parser": PARSER}
    part = str(attempt) if attempt else ""
    inputs = {"checkpoint": checkpoint, "turns": turns}
    do = partial(_score, config, settings)
    return Work(STAGE, ("teacher_logprobs", "metrics"), do, values, inputs, code=code, part=part)


def _score(
    config: StarPOConfig, settings: TeacherSettings, work: Work, store: Store, placement: ModelPlacement
) -> Iterator[Output]:
    from starpo.ragen.learning.distillation import hints, scoring
    from starpo.ragen.learning.metrics.table import metrics_table
    from starpo.ragen.runs.stored_images import read_turns

    turns, images = read_turns(store, {"turns": work.inputs["turns"]})
    by_turn: hints.Hints = {}
    if settings.hint == "plan":
        by_turn = hints.plans(turns, config.environment, config.agent.max_actions_per_turn)
    elif settings.hint == "outcome":
        by_turn = hints.outcomes(turns)
    key = work.inputs["checkpoint"]
    model = placement.teacher
    if model is None or model.key != key:
        model = placement.teacher = None  # the next one takes its memory
        model = placement.teacher = scoring.LoadedTeacher(
            placement.learner.policy_folder(store, key), key, settings.dtype
        )
    contexts = model.contexts(turns, images, by_turn, settings.hint_text, config.agent)
    scored = model.score(contexts, config.rollout.temperature, config.update.micro_batch_tokens, settings.limit_s)
    values, repeats = scoring.metrics(contexts, scored, turns), model.is_deterministic
    yield Output("metrics", metrics_table(work.settings["iteration"], STAGE.name, values), is_deterministic=repeats)
    yield Output("teacher_logprobs", scoring.table(contexts, scored), values, is_deterministic=repeats)
