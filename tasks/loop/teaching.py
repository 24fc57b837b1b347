"""`Teaching`: which checkpoint teaches a run, and what it says of each rollout.

teacher -> key of its checkpoint, once;   turns of all attempts -> tasks.teacher -> teacher_logprobs: data of the update
"""

from dataclasses import replace

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.teachers import ModelTeacher, PolicyTeacher, RunTeacher, ServerTeacher
from starpo.ragen.runs.work import Keys
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import TAUGHT, numbered, of_kind
from starpo.ragen.teacher_fit import name_of, named_checkpoint
from starpo.tasks.loop.runner import Runner
from starpo.tasks.teacher import teacher


class Teaching:
    """The teacher of a run. What it has scored of a rollout is used again with the rollout (Online-k)."""

    def __init__(self, runner: Runner, config: StarPOConfig, first: str, start: int = 0) -> None:
        """Find the teacher, and check that it reads the policy's tokens.

        Args:
            runner: Carries out the stages, or only derives their keys.
            config: All settings, with a teacher.
            first: Key of the run's first checkpoint.
            start: The first iteration.

        Raises:
            ConfigError: If it has another vocabulary than the policy, or its run has no such checkpoint.
            StoreError: If its run is not stored.
        """
        assert config.teacher is not None
        self._runner, self._fixed = runner, first
        self._outputs: dict[tuple[str, str], Keys] = {}
        settings = config.teacher
        if isinstance(settings, ServerTeacher):
            self._fixed = first  # for its tokenizer
        elif isinstance(settings, PolicyTeacher):
            self._fixed = first if settings.checkpoint == "first" else ""
        elif isinstance(settings, RunTeacher):
            url = runner.store_url  # empty where keys alone are derived
            self._fixed = named_checkpoint(Store(url), settings.checkpoint) if url else settings.checkpoint
        elif isinstance(settings, ModelTeacher):
            from starpo.tasks.first_checkpoint.pretrained import pretrained

            work = replace(pretrained(config, settings.policy), part="teacher")
            self._fixed = runner.stage(start, work)["checkpoint"]
        if self._fixed not in ("", first):
            runner.check_teacher(first, self._fixed, name_of(settings))

    def score(self, iteration: int, config: StarPOConfig, checkpoint: str, data: Keys) -> Keys:
        """Let the teacher score an iteration's rollouts.

        Args:
            iteration: Updates completed before it.
            config: Settings of the iteration.
            checkpoint: Key of the policy that is about to be updated.
            data: Role -> key of the turns of all attempts; more may be in it.

        Returns:
            Role -> key of what it says: `teacher_logprobs`, `teacher_top_tokens` if it was asked for them, and
            `teacher_logprobs:1`, ... of further attempts.
        """
        scored: Keys = {}
        for attempt, turns in enumerate(of_kind(data, "turns")):
            of_whom = (self._fixed or checkpoint, turns)
            if of_whom in self._outputs:
                self._runner.reuse(iteration, numbered("teacher", attempt), self._outputs[of_whom])
            else:
                self._outputs[of_whom] = self._runner.stage(
                    iteration, teacher(config, iteration, *of_whom, attempt, self._runner.progress)
                )
            outputs = self._outputs[of_whom]
            scored |= {numbered(kind, attempt): outputs[kind] for kind in TAUGHT if kind in outputs}
        return scored
