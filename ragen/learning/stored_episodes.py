"""Stored episodes to imitate, chosen by their outcome: rejection sampling, expert iteration.

    turns, rewards, selection of each rollout -> StoredEpisodes -> examples

Token ids are those that were sampled. Tables come from the caller; nothing is read from a store here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.config.policy import FineTuning
from starpo.ragen.core.counts import counted
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.visible import quoted
from starpo.ragen.learning.examples import Example
from starpo.ragen.learning.learners.trajectories import assemble

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass
class StoredEpisodes:
    """Episodes to imitate.

    Attributes:
        examples: Their contexts.
        successes: Whether each succeeded. [episodes]
        initial_states: Digest of the initial state of each. [episodes]
        responses: Tokens and text of the response of each turn. [turns]
        num_excluded: Number of episodes that qualify but begin in an excluded state.
        images: None: the contexts are of text alone.
    """

    examples: list[Example] = field(default_factory=list)
    successes: list[bool] = field(default_factory=list)
    initial_states: list[str] = field(default_factory=list)
    responses: list[tuple[list[int], str]] = field(default_factory=list)
    num_excluded: int = 0
    images: None = None

    @property
    def num_turns(self) -> int:
        """Number of turns."""
        return len(self.responses)

    def check_tokens(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        """Check that the tokens are those of a tokenizer: that every response decodes to its text.

        Raises:
            ConfigError: If one does not.
        """
        for ids, text in self.responses:
            whole, without_end = (
                tokenizer.decode(part, skip_special_tokens=False, clean_up_tokenization_spaces=False)
                for part in (ids, ids[:-1])
            )
            if text not in (whole, without_end):
                raise ConfigError(
                    "policy.fine_tuning.runs: these episodes were sampled with another tokenizer than that of "
                    f"policy.name_or_path, so their tokens mean something else: {quoted(text)} is "
                    f"{quoted(str(without_end))} to the policy. Name runs of a policy with the same tokenizer"
                )


def choose_episodes(
    rollouts: Iterable[tuple[pa.Table, pa.Table, pa.Table]], config: FineTuning, excluded: frozenset[str]
) -> StoredEpisodes:
    """Choose the episodes that the settings ask for; those with an error status and greedy ones never count.

    Args:
        rollouts: Datasets `turns`, `rewards` and `selection` of each rollout.
        config: `episodes` and `min_return` decide.
        excluded: Digests of initial states from which no chosen episode may begin.

    Raises:
        ConfigError: If no episode remains; the message says how many there were.
        LearnerError: If the datasets do not belong together, or a chosen episode was imported without its tokens.
    """
    chosen, num_episodes = StoredEpisodes(), 0
    for turns, rewards, selection in rollouts:
        outcomes = _outcomes(turns, rewards)
        num_episodes += outcomes.num_rows
        if config.episodes == "kept":
            kept = selection.filter(selection["kept"])["group_id"].combine_chunks()
            outcomes = outcomes.filter(pc.is_in(outcomes["group_id"], value_set=kept))
        elif config.episodes == "successful":
            outcomes = outcomes.filter(outcomes["success"])
        if config.min_return is not None:
            outcomes = outcomes.filter(pc.greater_equal(outcomes["trajectory_return"], config.min_return))
        is_excluded = pc.is_in(outcomes["initial_state_digest"], value_set=pa.array(sorted(excluded), pa.string()))
        chosen.num_excluded += pc.sum(is_excluded).as_py() or 0
        _add(chosen, outcomes.filter(pc.invert(is_excluded)), turns, rewards, selection)
    if not chosen.examples:
        wanted = {"kept": " in a group that the filter kept", "successful": " that succeeds", "all": ""}[
            config.episodes
        ]
        wanted += "" if config.min_return is None else f" with a return of at least {config.min_return:g}"
        raise ConfigError(
            f"policy.fine_tuning.runs = {config.runs}: none of {counted(num_episodes, 'stored episode')} can be "
            f"imitated; expected at least one{wanted} that begins outside the evaluation panels (of those that "
            f"qualify, {chosen.num_excluded} begin on a panel). Name more iterations, or loosen "
            "policy.fine_tuning.episodes and policy.fine_tuning.min_return"
        )
    return chosen


def _outcomes(turns: pa.Table, rewards: pa.Table) -> pa.Table:
    """One row per valid episode: trajectory_id, group_id, success, initial_state_digest, trajectory_return."""
    of_turns = turns.group_by("trajectory_id", use_threads=False).aggregate([("success", "max")])
    first = turns.filter(pc.equal(turns["turn"], 0)).select(["trajectory_id", "group_id", "initial_state_digest"])
    returns = rewards.filter(pc.and_(rewards["is_valid"], pc.equal(rewards["turn"], 0)))
    returns = returns.select(["trajectory_id", "trajectory_return"])
    table = first.join(of_turns, "trajectory_id").join(returns, "trajectory_id", join_type="inner")
    return table.rename_columns({"success_max": "success"}).sort_by("trajectory_id")


def _add(chosen: StoredEpisodes, outcomes: pa.Table, turns: pa.Table, rewards: pa.Table, selection: pa.Table) -> None:
    ids = outcomes["trajectory_id"].combine_chunks()
    turns, rewards = (table.filter(pc.is_in(table["trajectory_id"], value_set=ids)) for table in (turns, rewards))
    # Imitation needs no log-probs, and what a server said has none.
    spoken_ids = turns["response_ids"].combine_chunks()
    unused = pa.ListArray.from_arrays(spoken_ids.offsets, pa.array([0.0] * len(spoken_ids.values), pa.float32()))
    turns = turns.set_column(turns.schema.get_field_index("behaviour_logprobs"), "behaviour_logprobs", unused)
    everything = pa.array([True] * selection.num_rows)
    kept = selection.set_column(selection.schema.get_field_index("kept"), "kept", everything)
    for trajectory in assemble(turns, rewards, kept):
        chosen.examples += [Example(part.token_ids, part.response_mask) for part in trajectory.segments]
    spoken = (turns[name].to_pylist() for name in ("response_ids", "response"))
    chosen.responses += zip(*spoken, strict=True)
    chosen.successes += outcomes["success"].to_pylist()
    chosen.initial_states += outcomes["initial_state_digest"].to_pylist()
