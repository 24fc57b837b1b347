"""The text of user messages: what the agent is told (RAGEN, environments).

Owns wording only: knows no tokens and no chat template. Whatever a trajectory was told is stored as token ids, so
sampling and training cannot see different prompts.

    environment's rules and observation -> text of a user message -> `context`
"""

from collections.abc import Sequence

from starpo.ragen.config.agent import ACTION_SEPARATOR, AgentConfig

_INVALID_ACTION_WARNING = (
    "Your last response was invalid: it broke the output form or named an unknown action. Please follow the form."
)


def introduction(rules: str, actions: Sequence[str], agent: AgentConfig) -> str:
    """What opens every context when prompt = 'full': the rules, the actions, and how to name several of them.

    Args:
        rules: The environment's rules and the meaning of its symbols.
        actions: Names of the actions.
        agent: Gives the number of actions a turn.
    """
    if agent.max_actions_per_turn == 1:
        allowance = "Take one action a turn."
    else:
        allowance = (
            f"Take up to {agent.max_actions_per_turn} actions a turn, separated by {ACTION_SEPARATOR}, "
            f"as in: first action {ACTION_SEPARATOR} second action"
        )
    return f"{rules.strip()}\n\nYour available actions are: {', '.join(actions)}\n{allowance}"


def turn_message(
    observation: str,
    *,
    turn: int,
    actions_left: int,
    reward: float | None,
    had_invalid_action: bool,
    agent: AgentConfig,
    max_response_tokens: int,
) -> str:
    """What a turn tells: the state and, when prompt = 'full', everything else that RAGEN lists for it.

    Args:
        observation: What the environment shows.
        turn: Index in the trajectory, from 0; shown from 1.
        actions_left: Actions that may still be taken.
        reward: The environment's reward of the turn before; None: do not show it.
        had_invalid_action: Was the response before this one malformed?
        agent: Which prompt, and the output form.
        max_response_tokens: Longest response.
    """
    if agent.prompt == "state":
        return observation
    lines = []
    if reward is not None:
        lines += [f"Reward: {reward + 0.0:g}", ""]  # + 0.0 turns -0.0 into 0.0
    lines += [f"Turn {turn + 1}:", "State:", observation]
    if had_invalid_action:
        lines.append(_INVALID_ACTION_WARNING)
    lines.append(f"You have {actions_left} action{'' if actions_left == 1 else 's'} left.")
    lines.append(f"Always output: {_output_form(agent)} with nothing outside the tags.")
    lines.append(f"Max response length: {max_response_tokens} tokens.")
    return "\n".join(lines)


def _output_form(agent: AgentConfig) -> str:
    actions = "your action" if agent.max_actions_per_turn == 1 else "your actions"
    answer = f"<answer>{actions}</answer>"
    return f"<think>your reasoning</think>{answer}" if agent.should_think else answer
