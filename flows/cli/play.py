"""`starpo play`: a person plays an environment in the terminal, with actions by name or by key."""

from typing import Annotated

import typer
from rich.panel import Panel
from rich.text import Text

from starpo.flows.console.terminal import Console
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.seeding import dynamics_seed
from starpo.ragen.envs import make
from starpo.ragen.envs.grammar import Names
from starpo.ragen.envs.variants import variant as find_variant

_MAX_ACTIONS = AgentConfig().max_actions
"""The paper's limit."""


def play(
    env: Annotated[str, typer.Argument(help="A variant of `starpo envs`, or module:attribute.")],
    seed: Annotated[int, typer.Option(help="Seed of the initial state.")] = 0,
    actions: Annotated[int, typer.Option(min=1, help="Number of actions allowed.")] = _MAX_ACTIONS,
) -> None:
    """Play an environment yourself in the terminal."""
    play_in_terminal(env, seed, actions)


def play_in_terminal(variant: str, seed: int, max_actions: int = _MAX_ACTIONS, console: Console | None = None) -> bool:
    """Play one episode.

    Args:
        variant: Name of a variant, or `module:attribute`.
        seed: Seed of the initial state.
        max_actions: Maximum number of actions.
        console: Console for output and input. None for the terminal.

    Returns:
        Whether the goal was reached.

    Raises:
        ConfigError: If there is no such variant.
    """
    console = console or Console()
    environment = make(find_variant(variant).settings)
    environment.reset(seed=seed, dynamics_seed=dynamics_seed(seed, 0))
    console.print(environment.rules())
    grammar = environment.grammar
    keys = _keys(environment.actions) if isinstance(grammar, Names) else {}
    if not keys:
        console.print(grammar.describe())
    keys_shown = [*(f"{key} = {action}" for key, action in keys.items()), "q = quit"]
    console.print("keys: " + ", ".join(keys_shown))
    left, total = max_actions, 0.0
    while left:
        console.print(Panel(Text(environment.render()), title=f"{left} actions left, reward {total:.1f}", expand=False))
        typed = console.input("action: ").strip()
        if typed.lower() in ("q", "quit"):
            return False
        action = keys.get(typed.lower()) or grammar.read(typed)
        if action is None:
            console.print(f"'{typed}' is not an action here")
            continue
        _, reward, terminated, _, _ = environment.step(action)
        total, left = total + reward, left - 1
        if terminated:
            break
    console.print(Panel(Text(environment.render()), title=f"the end, reward {total:.1f}", expand=False))
    console.print("goal reached" if environment.is_success else "goal not reached")
    return environment.is_success


def _keys(actions: tuple[str, ...]) -> dict[str, str]:
    """Map keys to actions: first letters if they are distinct, numbers otherwise."""
    letters = [action[0].lower() for action in actions]
    if len(set(letters)) == len(actions) and "q" not in letters:
        return dict(zip(letters, actions, strict=True))
    return {str(number): action for number, action in enumerate(actions, start=1)}
