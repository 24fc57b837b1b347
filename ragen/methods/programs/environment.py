"""The environment of a program, as panels, audits and settings see it: its tasks are its initial states.

env_seed -> task -> observation, digest

It is played by the program, through the endpoint, and never stepped.
"""

import json
import random
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

from starpo.ragen.core.counts import counted
from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.lookup import TARGET, resolve
from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.core.visible import shortened
from starpo.ragen.envs.base import Environment, EnvironmentSettings, Info
from starpo.ragen.envs.grammar import FreeText, Grammar
from starpo.ragen.methods.programs.process import words_of
from starpo.ragen.methods.programs.served import MAX_NAMED
from starpo.ragen.methods.programs.settings import ProgramSettings, code_digest
from starpo.ragen.methods.programs.tasks import Task, as_json, digest, load_tasks, task_of

_MAX_REASONS = 3
_MAX_TASK = 120


class Program(Environment[ProgramSettings]):
    """Environment whose episodes are played by a program.

    Attributes:
        task: Task of the current episode; without fields before the first reset.
    """

    settings_type = ProgramSettings
    plays: ClassVar[str] = "starpo.ragen.methods.programs.player:play"

    def __init__(self, settings: ProgramSettings) -> None:
        super().__init__(settings)
        self.task: Task = {}

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        """Draw a task.

        Raises:
            EnvironmentFault: If the program, its tasks or its reward cannot be found, or have changed.
        """
        assert self._is_ready
        self.task = task_of(self.settings, seed)
        return self.render(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Refuse: a program plays.

        Raises:
            EnvironmentFault: Always.
        """
        raise EnvironmentFault("program: its episodes are played by the program itself, and cannot be stepped")

    @classmethod
    def remarks(cls, infos: Sequence[str]) -> list[str]:
        """Say which requests were refused, and which sampling settings of the program had no effect."""
        facts = [json.loads(info) for info in infos]
        refused = [one["refusals"] for one in facts if one.get("refusals")]
        overridden = sorted({name for one in facts for name in one.get("overridden", ())})
        remarks = []
        if refused:
            reasons = Counter(reason for reasons in refused for reason in dict.fromkeys(reasons))
            named = "; ".join(f"{reason} (in {number})" for reason, number in reasons.most_common(_MAX_REASONS))
            remarks.append(f"in {len(refused)} of {len(facts)} episodes, requests of the program were refused: {named}")
        if overridden:
            remarks.append(
                f"what the program sets has no effect ({', '.join(overridden)}): responses are sampled with the run's "
                "settings and seeds (environment.sampling = 'refuse' refuses others)"
            )
        return remarks

    @classmethod
    def incidents(cls, settings: EnvironmentSettings, episodes: Sequence[tuple[str, int, str]]) -> list[str]:
        """Name each request that was refused: episode, task, number, endpoint, field, reason and what it sent."""
        assert isinstance(settings, ProgramSettings)
        named, num_refused = [], 0
        for trajectory_id, env_seed, info in episodes:
            facts = json.loads(info)
            num_refused += facts.get("refused", 0)
            task = shortened(without_secrets(as_json(task_of(settings, env_seed))), _MAX_TASK)
            for one in facts.get("refused_requests", ()):
                field = f", field {one['field']}" if one["field"] else ""
                place = f"{trajectory_id} (task {task}), request {one['request']}, {one['endpoint']}{field}"
                body = f" It sent {one['body']}" if one.get("body") else ""
                named.append(f"{place}: {one['reason'].removesuffix('.')}.{body}")
        num_more = num_refused - len(named[:MAX_NAMED])
        return named[:MAX_NAMED] + ([f"and {counted(num_more, 'more request')}"] if num_more else [])

    @cached_property
    def _is_ready(self) -> bool:
        """True; raises what stands in the way of starting the program."""
        settings = self.settings
        words_of(settings.command, {})
        if isinstance(settings.reward, list):
            words_of(settings.reward, {})
        elif TARGET.fullmatch(settings.reward) and not callable(resolve(settings.reward)):
            raise EnvironmentFault(f"the reward {settings.reward} is not a function of the transcript and the task")
        digest = code_digest([settings.command, settings.reward])
        if digest != settings.code_digest:
            raise EnvironmentFault(
                f"the code that command and reward name has changed: it has the digest {digest}, but the settings name "
                f"{settings.code_digest}. Restore it, or leave code_digest out of the settings to use it as it is now"
            )
        return True

    @property
    def num_initial_states(self) -> int | None:  # type: ignore[override]
        """1 if there is a single task, which training and evaluation must share."""
        return 1 if len(load_tasks(self.settings)) == 1 else None

    @property
    def actions(self) -> tuple[str, ...]:
        """Empty: not listed."""
        return ()

    @property
    def grammar(self) -> Grammar:
        """Any text."""
        return FreeText("An action is whatever the program makes of a response", max_chars=1_000_000)

    def random_action(self, rng: random.Random) -> str:
        """Return a word."""
        return rng.choice(("yes", "no"))

    @property
    def replay_fault(self) -> str:
        """Never empty."""
        return "its episodes are played by a program, which may do anything"

    @property
    def is_success(self) -> bool:
        """False: the program's reward says."""
        return False

    def rules(self) -> str:
        """Return the settings' description of the task."""
        return self.settings.about or "A program plays, and asks what it likes."

    def state_digest(self) -> str:
        """Return the digest of the task."""
        return digest(self.task)

    def render(self) -> str:
        """Return the task as JSON."""
        return as_json(self.task)
