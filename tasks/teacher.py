"""checkpoint, turns -> teacher_logprobs (, teacher_top_tokens), metrics: what a teacher says of the policy's tokens."""

from collections.abc import Iterator
from functools import partial

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.teachers import LoadedTeacherSettings, ServerTeacher, TeacherSettings
from starpo.ragen.core.registry import PARSER
from starpo.ragen.envs.make import environment_code, environment_type
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.schemas.manifest import Stage
from starpo.tasks.progress import RunProgress

STAGE = Stage(name="teacher", version=1)


def teacher(
    config: StarPOConfig,
    iteration: int,
    checkpoint: str,
    turns: str,
    attempt: int = 0,
    progress: RunProgress | None = None,
) -> Work:
    """Let a teacher score the responses of a rollout, whatever the filter keeps of it.

    Iterations and runs that share rollout, teacher and hints share what it says.

    Args:
        config: Settings of the iteration, with a teacher.
        iteration: Updates completed before it, for the metrics.
        checkpoint: Key of the teacher's checkpoint; of a server, that of the policy's tokenizer.
        turns: Key of the turns.
        attempt: Index of that rollout within the iteration.
        progress: Receives its progress.

    Raises:
        LearnerError: When carried out, if the teacher fails or takes longer than its limit.
    """
    settings = config.teacher
    assert settings is not None
    has_hint = settings.hint != "none"
    values = {
        "iteration": iteration,
        "temperature": config.rollout.temperature,
        **({"hint": settings.hint, "hint_text": settings.hint_text} if has_hint else {}),
    }
    top_tokens = ("teacher_top_tokens",) if settings.top_k else ()
    values |= {"top_k": settings.top_k} if settings.top_k else {}
    if isinstance(settings, LoadedTeacherSettings):
        values |= {"micro_batch_tokens": config.update.micro_batch_tokens, "dtype": settings.dtype}
    elif isinstance(settings, ServerTeacher):
        values |= {"model": settings.model}
    code = {}
    if settings.hint == "plan":
        player = environment_type(config.environment.type).demonstrator
        code = {**environment_code(config.environment), "demonstrator": player, "parser": PARSER}
    part = str(attempt) if attempt else ""
    inputs = {"checkpoint": checkpoint, "turns": turns}
    do = partial(_score, config, settings, progress)
    outputs = ("teacher_logprobs", *top_tokens, "metrics")
    return Work(STAGE, outputs, do, values, inputs, code=code, part=part)


def _score(
    config: StarPOConfig,
    settings: TeacherSettings,
    progress: RunProgress | None,
    work: Work,
    store: Store,
    placement: ModelPlacement,
) -> Iterator[Output]:
    from starpo.ragen.learning.distillation import hints, scoring
    from starpo.ragen.learning.distillation.contexts import hinted_contexts
    from starpo.ragen.learning.metrics.table import metrics_table
    from starpo.ragen.runs.stored_images import read_turns

    turns, images = read_turns(store, {"turns": work.inputs["turns"]})
    by_turn: hints.Hints = {}
    if settings.hint == "plan":
        by_turn = hints.plans(turns, config.environment, config.agent.max_actions_per_turn)
    elif settings.hint == "outcome":
        by_turn = hints.outcomes(turns)
    contexts_of = partial(hinted_contexts, turns, images, by_turn, settings.hint_text, config.agent)
    key = work.inputs["checkpoint"]
    on_progress = progress.counting("context" if isinstance(settings, ServerTeacher) else "pass") if progress else None
    if isinstance(settings, ServerTeacher):
        from starpo.ragen.agents.policy.load import load_tokenizer
        from starpo.ragen.learning.distillation.served import score_on_server

        tokenizer = load_tokenizer(placement.learner.policy_folder(store, key))
        contexts, repeats = contexts_of(tokenizer), False
        scored = score_on_server(contexts, tokenizer, settings, on_progress)
    else:
        model = placement.teacher
        if model is None or model.key != key:
            model = placement.teacher = None  # the next one takes its memory
            folder = placement.learner.policy_folder(store, key)
            model = placement.teacher = scoring.LoadedTeacher(folder, key, work.settings["dtype"])
        contexts, repeats = contexts_of(model.tokenizer), model.is_deterministic
        budget = config.update.micro_batch_tokens
        limits = settings.top_k, settings.limit_s
        scored = model.score(contexts, config.rollout.temperature, budget, *limits, on_progress=on_progress)
    values = scoring.metrics(contexts, scored, turns)
    yield Output("metrics", metrics_table(work.settings["iteration"], STAGE.name, values), is_deterministic=repeats)
    if "teacher_top_tokens" in work.outputs:
        yield Output("teacher_top_tokens", scoring.top_tokens(contexts, scored), is_deterministic=repeats)
    yield Output("teacher_logprobs", scoring.table(contexts, scored), values, is_deterministic=repeats)
