"""Stored episodes to imitate, chosen by their outcome: rejection sampling, expert iteration, a teacher's conversations.

    turns, rewards, selection of each rollout -> StoredEpisodes -> (the policy's tokenizer) -> examples

Token ids are those that were sampled. An episode of which only text is known is tokenised by the policy's chat template
(`conversations`). Tables come from the caller; nothing is read from a store here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.policy import FineTuning
from starpo.ragen.core.counts import counted
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.visible import quoted
from starpo.ragen.learning.conversations import ChatExamples, Conversation, LeftOut, conversations_of
from starpo.ragen.learning.examples import Example
from starpo.ragen.learning.learners.data.trajectories import assemble
from starpo.schemas.datasets import ERROR_STATUSES
from starpo.schemas.imported import imported_facts
from starpo.schemas.texts import is_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_COLUMNS = [
    "trajectory_id", "turn", "is_context_start", "observation", "response_ids", "response", "finish_reason", "info"
]  # fmt: skip


@dataclass(frozen=True)
class StoredEpisode:
    """An episode to imitate.

    Attributes:
        examples: Its contexts; of one whose text alone is known, once it is tokenised.
        responses: Tokens and text of the response of each turn. [turns]
        success: Whether it succeeded; None if its source does not say.
        initial_state: Digest of its initial state; None if its source does not say.
        conversations: Its contexts as messages, if its text alone is known.
    """

    examples: list[Example]
    responses: list[tuple[list[int], str]]
    success: bool | None = None
    initial_state: str | None = None
    conversations: list[Conversation] = field(default_factory=list)


@dataclass(frozen=True)
class StoredEpisodes:
    """Episodes to imitate.

    Attributes:
        episodes: The episodes.
        num_excluded: Number of episodes that qualify but begin in an excluded state.
        num_texts: Number of conversations that were tokenised by the policy's chat template.
        left_out: Conversations that cannot be, by reason.
        images: None: the contexts are of text alone.
    """

    episodes: list[StoredEpisode]
    num_excluded: int = 0
    num_texts: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)
    images: None = None

    @property
    def examples(self) -> list[Example]:
        """Contexts to learn from."""
        return [example for episode in self.episodes for example in episode.examples]

    @property
    def num_episodes(self) -> int:
        """Number of episodes."""
        return len(self.episodes)

    @property
    def num_turns(self) -> int:
        """Number of turns."""
        return sum(len(episode.responses) for episode in self.episodes)

    @property
    def successes(self) -> list[bool]:
        """Whether each episode succeeded, of those whose source says so."""
        return [episode.success for episode in self.episodes if episode.success is not None]

    @property
    def initial_states(self) -> list[str]:
        """Digest of the initial state of each episode, of those whose source says so."""
        return [episode.initial_state for episode in self.episodes if episode.initial_state is not None]

    @property
    def summary(self) -> str:
        """What is imitated, in a line."""
        examples = self.examples
        num_tokens = sum(int(example.response_mask.sum()) for example in examples)
        texts = (
            f" ({counted(self.num_texts, 'conversation')} of text, written by the policy's chat template)"
            if self.num_texts
            else ""
        )
        excluded = f"; {self.num_excluded} begin on an evaluation panel and are left out" if self.num_excluded else ""
        return (
            f"{counted(self.num_episodes, 'episode')}{texts} in {counted(len(examples), 'example')}, with a loss on "
            f"{num_tokens:,} tokens of responses{excluded}"
        )

    def tokenised(self, tokenizer: "PreTrainedTokenizerBase", agent: AgentConfig, max_tokens: int) -> "StoredEpisodes":
        """Return the episodes as tokens of a policy.

        Args:
            tokenizer: That of the policy.
            agent: Its chat template.
            max_tokens: Conversations that are longer are left out.

        Raises:
            ConfigError: If the tokens of an episode are those of another tokenizer, or every episode is left out.
            TemplateError: If conversations have to be tokenised, and there is no chat template that can be used.
        """
        conversations = [one for episode in self.episodes for one in episode.conversations]
        made, left_out = ChatExamples(tokenizer, agent, max_tokens).make(conversations)
        of_conversations = iter(made)
        kept = []
        for episode in self.episodes:
            if not episode.conversations:
                _check_tokens(tokenizer, episode)
                kept.append(episode)
            elif examples := [example for _ in episode.conversations for example in next(of_conversations)]:
                kept.append(replace(episode, examples=examples))
        if not kept:
            raise ConfigError(
                "policy.fine_tuning.runs: no conversation can be imitated. " + ". ".join(left_out.lines())
            )
        return replace(self, episodes=kept, num_texts=len(conversations) - len(left_out), left_out=left_out)


def _check_tokens(tokenizer: "PreTrainedTokenizerBase", episode: StoredEpisode) -> None:
    """Check that the tokens of an episode are those of a tokenizer: that every response decodes to its text.

    Raises:
        ConfigError: If one does not.
    """
    for ids, text in episode.responses:
        whole, without_end = (
            tokenizer.decode(part, skip_special_tokens=False, clean_up_tokenization_spaces=False)
            for part in (ids, ids[:-1])
        )
        if text not in (whole, without_end):
            raise ConfigError(
                "policy.fine_tuning.runs: these episodes were sampled with another tokenizer than that of "
                f"policy.name_or_path, so their tokens mean something else: {quoted(text)} is "
                f"{quoted(str(without_end))} to the policy. Name runs of a policy with the same tokenizer, or take "
                "the texts, which the policy's own chat template writes: starpo export RUN --format messages, then "
                "starpo import (a teacher of a program: starpo record --protocol chat)"
            )


def choose_episodes(
    rollouts: Iterable[tuple[pa.Table, pa.Table | None, pa.Table | None]],
    config: FineTuning,
    excluded: frozenset[str],
) -> StoredEpisodes:
    """Choose the episodes that the settings ask for; those with an error status and greedy ones never count.

    Args:
        rollouts: Datasets `turns`, `rewards` and `selection` of each rollout; the latter two None without rewards.
        config: `episodes` and `min_return` decide.
        excluded: Digests of initial states from which no chosen episode may begin.

    Raises:
        ConfigError: If no episode remains; the message says how many there were.
        LearnerError: If the datasets do not belong together.
    """
    chosen: list[StoredEpisode] = []
    num_episodes = num_excluded = num_untold = 0
    for turns, rewards, selection in rollouts:
        outcomes = _outcomes(turns, rewards)
        num_episodes += outcomes.num_rows
        num_untold += sum("success" in _absent(row) for row in outcomes.select(["info"]).to_pylist())
        if config.episodes == "kept":
            kept = [] if selection is None else selection.filter(selection["kept"])["group_id"].to_pylist()
            outcomes = outcomes.filter(pc.is_in(outcomes["group_id"], value_set=pa.array(kept, pa.string())))
        elif config.episodes == "successful":
            outcomes = outcomes.filter(outcomes["success"])
        if config.min_return is not None:
            outcomes = outcomes.filter(pc.greater_equal(outcomes["trajectory_return"], config.min_return))
        is_excluded = pc.is_in(outcomes["initial_state_digest"], value_set=pa.array(sorted(excluded), pa.string()))
        num_excluded += pc.sum(is_excluded).as_py() or 0
        chosen += _episodes(outcomes.filter(pc.invert(is_excluded)), turns, rewards)
    if not chosen:
        wanted = {"kept": " in a group that the filter kept", "successful": " that succeeds", "all": ""}[
            config.episodes
        ]
        wanted += "" if config.min_return is None else f" with a return of at least {config.min_return:g}"
        untold = (
            f". Whether they succeeded is not told by the source of {num_untold}: policy.fine_tuning.episodes = 'all' "
            "takes those too"
            if num_untold and config.episodes == "successful"
            else ""
        )
        raise ConfigError(
            f"policy.fine_tuning.runs = {config.runs}: none of {counted(num_episodes, 'stored episode')} can be "
            f"imitated; expected at least one{wanted} that begins outside the evaluation panels (of those that "
            f"qualify, {num_excluded} begin on a panel). Name more iterations, or loosen "
            f"policy.fine_tuning.episodes and policy.fine_tuning.min_return{untold}"
        )
    return StoredEpisodes(chosen, num_excluded)


def _outcomes(turns: pa.Table, rewards: pa.Table | None) -> pa.Table:
    """One row per valid episode: trajectory_id, group_id, success, initial_state_digest, trajectory_return (null
    without rewards), info of its first turn."""
    of_turns = turns.group_by("trajectory_id", use_threads=False).aggregate([("success", "max")])
    names = ["trajectory_id", "group_id", "initial_state_digest", "info"]
    first = turns.filter(pc.equal(turns["turn"], 0)).select(names)
    rewards = _no_rewards(turns) if rewards is None else rewards
    returns = rewards.filter(pc.and_(rewards["is_valid"], pc.equal(rewards["turn"], 0)))
    returns = returns.select(["trajectory_id", "trajectory_return"])
    table = first.join(of_turns, "trajectory_id").join(returns, "trajectory_id", join_type="inner")
    return table.rename_columns({"success_max": "success"}).sort_by("trajectory_id")


def _no_rewards(turns: pa.Table) -> pa.Table:
    """Rewards of turns that have none, as far as they are needed here: which trajectories are valid."""
    is_void = pc.or_(pc.is_in(turns["status"], value_set=pa.array(ERROR_STATUSES)), pc.equal(turns["origin"], "greedy"))
    void = turns.filter(is_void)["trajectory_id"].combine_chunks()
    unknown = pa.nulls(turns.num_rows, pa.float64())
    columns: dict[str, Any] = dict.fromkeys(("total", "trajectory_return", "normalised_return"), unknown)
    columns |= {name: turns[name] for name in ("trajectory_id", "turn")}
    return pa.table(columns | {"is_valid": pc.invert(pc.is_in(turns["trajectory_id"], value_set=void))})


def _episodes(outcomes: pa.Table, turns: pa.Table, rewards: pa.Table | None) -> Iterator[StoredEpisode]:
    """Yield the episodes of these outcomes, in the order in which they appear in `turns`."""
    wanted = {row["trajectory_id"]: row for row in outcomes.to_pylist()}
    turns = _of(turns, wanted)
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in turns.select(_COLUMNS).to_pylist():
        rows.setdefault(row["trajectory_id"], []).append(row)
    texts = {name for name, episode_rows in rows.items() if any(map(is_text, episode_rows))}
    recorded = rows.keys() - texts
    examples = _recorded(_of(turns, recorded), _of(_no_rewards(turns) if rewards is None else rewards, recorded))
    for name, episode_rows in rows.items():
        episode_rows.sort(key=lambda row: row["turn"])
        absent = _absent(wanted[name])
        yield StoredEpisode(
            examples.get(name, []),
            [(row["response_ids"], row["response"]) for row in episode_rows],
            None if "success" in absent else wanted[name]["success"],
            None if "initial_state_digest" in absent else wanted[name]["initial_state_digest"],
            conversations_of(episode_rows) if name in texts else [],
        )


def _recorded(turns: pa.Table, rewards: pa.Table) -> dict[str, list[Example]]:
    """Return the examples of episodes whose tokens are known, by trajectory."""
    # Imitation needs no log-probs, and what a server said has none.
    spoken_ids = turns["response_ids"].combine_chunks()
    unused = pa.ListArray.from_arrays(spoken_ids.offsets, pa.array([0.0] * len(spoken_ids.values), pa.float32()))
    turns = turns.set_column(turns.schema.get_field_index("behaviour_logprobs"), "behaviour_logprobs", unused)
    groups = pc.unique(turns["group_id"])
    kept = pa.table({"group_id": groups, "kept": pa.array([True] * len(groups), pa.bool_())})
    return {
        trajectory.trajectory_id: [Example(part.token_ids, part.response_mask) for part in trajectory.segments]
        for trajectory in assemble(turns, rewards, kept)
    }


def _absent(row: Mapping[str, Any]) -> Sequence[str]:
    """Return the columns that the source of a row does not tell."""
    return imported_facts(row).get("absent", ())


def _of(table: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return the rows of some trajectories."""
    return table.filter(pc.is_in(table["trajectory_id"], value_set=pa.array(sorted(names), pa.string())))
