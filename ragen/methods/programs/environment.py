"""The environment of a program."""

from starpo.ragen.envs.base import Environment, Info
from starpo.ragen.methods.programs.settings import ProgramSettings
from starpo.ragen.methods.programs.tasks import digest, task_of


class Program(Environment[ProgramSettings]):
    """Environment whose episodes are played by a program."""

    settings_type = ProgramSettings
    plays = "starpo.ragen.methods.programs.player:play"

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        """Draw a task."""
        self._task = task_of(self.settings, seed)
        return self.render(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Refuse."""
        raise NotImplementedError

    @property
    def actions(self) -> tuple[str, ...]:
        """Empty."""
        return ()

    @property
    def replay_fault(self) -> str:
        """Never empty."""
        return "its episodes are played by a program, which may do anything"

    @property
    def is_success(self) -> bool:
        """False."""
        return False

    def rules(self) -> str:
        """Return a sentence."""
        return "A program plays."

    def state_digest(self) -> str:
        """Return the digest of the task."""
        return digest(self._task)

    def render(self) -> str:
        """Return the task."""
        return str(dict(self._task))
