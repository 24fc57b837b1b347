"""The 2 x 2 cube (RAGEN-2, environments): turn faces until each has a single colour.

seed -> scramble and orientation of the cube
"""

from hashlib import blake2b
from typing import ClassVar, Literal

from pydantic import Field

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.base import Environment, EnvironmentSettings, Info
from starpo.ragen.envs.rubik.cube import ACTIONS, faces, is_solved, turned
from starpo.ragen.envs.rubik.solver import MAX_DISTANCE, scrambled

_NAMES = {"U": "Up", "L": "Left", "F": "Front", "R": "Right", "B": "Back", "D": "Down"}


class RubikSettings(EnvironmentSettings):
    """Difficulty of the scramble and form of observations."""

    type: Literal["rubik"] = "rubik"
    scramble: int = Field(2, ge=1, le=MAX_DISTANCE)
    """Length of the shortest solution in quarter turns. There are 144 different cubes for 1, 648 for 2 and 2,880 for 3:
    with 1, a panel of held-out cubes must be small."""
    observation: Literal["net", "faces"] = "net"
    """'net': the unfolded cube. 'faces': one line per face with its four stickers, row by row."""


class Rubik(Environment[RubikSettings]):
    """Environment with one cube per episode, until it is solved."""

    settings_type = RubikSettings
    demonstrator: ClassVar[str] = "starpo.ragen.envs.rubik.demonstrations:demonstrate"

    def __init__(self, settings: RubikSettings) -> None:
        super().__init__(settings)
        self._cube: str | None = None

    @property
    def cube(self) -> str:
        """The 24 stickers, in the order of `ragen.envs.rubik.cube`."""
        if self._cube is None:
            raise EnvironmentFault("rubik: there is no cube before the first reset; call reset")
        return self._cube

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        """Scramble a cube."""
        self._cube = scrambled(self.settings.scramble, python_random(seed, "rubik"))
        return self.render(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Turn a face; the reward is 1 if that solves the cube and otherwise 0."""
        before = self.cube
        if action not in ACTIONS:
            raise EnvironmentFault(f"rubik: '{action}' is not a turn; the turns are {', '.join(ACTIONS)}")
        if self.is_success:
            raise EnvironmentFault("rubik: the episode has ended with the solved cube; call reset")
        self._cube = turned(before, action)
        info = {"effective": self._cube != before, "is_success": self.is_success}
        return self.render(), 1.0 if self.is_success else 0.0, self.is_success, False, info

    @property
    def actions(self) -> tuple[str, ...]:
        """The twelve quarter turns."""
        return ACTIONS

    @property
    def is_success(self) -> bool:
        """Whether every face has a single colour."""
        return self._cube is not None and is_solved(self._cube)

    def rules(self) -> str:
        """Return the task description and the format of the configured observation."""
        shown = "one line per face: its name, then its four stickers, row by row"
        if self.settings.observation == "net":
            shown = "the unfolded cube: Up on top, then Left, Front, Right and Back side by side, then Down"
        return "\n".join(
            [
                "You are solving a 2x2x2 Rubik's cube. Turn its layers until every face has a single colour; it does "
                "not matter which face has which colour.",
                "An action turns one layer by a quarter: U (up), D (down), L (left), R (right), F (front) or B (back). "
                "The letter alone turns it clockwise, as seen facing that side; with ' it turns counter-clockwise.",
                f"The state shows {shown}. Colours: W white, O orange, G green, R red, B blue, Y yellow.",
                "Solving the cube earns 1 and ends the episode. Every other action earns 0.",
                f"Actions: {', '.join(ACTIONS)}",
            ]
        )

    def state_digest(self) -> str:
        """Return a digest of the stickers."""
        return blake2b(self.cube.encode(), digest_size=8).hexdigest()

    def render(self) -> str:
        """Return the observation in the configured form."""
        shown = faces(self.cube)
        if self.settings.observation == "faces":
            return "\n".join(f"{_NAMES[face]} {' '.join(colours)}" for face, colours in shown.items())
        rows: dict[str, tuple[str, str]] = {face: (colours[:2], colours[2:]) for face, colours in shown.items()}
        lines = [f"   {row}" for row in rows["U"]]
        lines += [" ".join(rows[face][number] for face in "LFRB") for number in range(2)]
        lines += [f"   {row}" for row in rows["D"]]
        return "\n".join(lines)
