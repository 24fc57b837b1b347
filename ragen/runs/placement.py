"""`ModelPlacement`: where a run plays and learns: its players and its learner, kept loaded between stages.

    with ModelPlacement() as placement:
        work.carry_out(store, placement)    # and further stages, which find engines and models loaded

Whoever carries out a run, or several stages, opens one and passes it on. Two runs in one process share nothing.
"""

from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starpo.ragen.learning.distillation.scoring import LoadedTeacher


class ModelPlacement:
    """Players and learner of a run, closed at its end, however it ends.

    Attributes:
        players: Engines, worker processes and actors of its rollouts.
        learner: Its learner, and the policies that this has just made.
        teacher: The model that its stage `teacher` loaded last.
    """

    def __init__(self, *, is_here: bool = False) -> None:
        """Load nothing yet.

        Args:
            is_here: Play on this machine regardless of STARPO_POOL, as no other machine can read the store.
        """
        from starpo.ragen.runs.loaded_learner import LoadedLearner
        from starpo.ragen.runs.players import Players

        self.players = Players(are_here=is_here)
        self.learner = LoadedLearner(self.players)
        self.teacher: LoadedTeacher | None = None

    def __enter__(self) -> "ModelPlacement":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release models, and end worker processes, actors and ranks."""
        self.teacher = None
        with ExitStack() as closing:
            closing.callback(self.learner.close)
            closing.callback(self.players.close)
