"""Some episodes played before a run: what the policy does, what to change first, and how fast it plays.

settings, a policy's folder -> episodes in this process -> Trial -> advice
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.config.device import Device
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import EngineError
from starpo.ragen.envs.initial_states import fresh_env_seed
from starpo.ragen.envs.make import environment_type
from starpo.ragen.store import Store
from starpo.schemas.rules import ZERO_VARIANCE_STD

_MEMBERS = 4
"""Members of a group; a run's groups are larger, but then a few episodes would be one or two groups."""
_FEW_WELL_FORMED, _MANY_CUT, _FEW_DIFFERING, _SOLVED = 0.8, 0.1, 0.25, 0.9


@dataclass(frozen=True)
class Trial:
    """What some episodes showed.

    Attributes:
        num_episodes: Episodes played.
        num_failed: Those that ended by a fault of the environment.
        num_responses: Responses.
        well_formed: Share of well-formed responses.
        response_tokens: Mean length of a response, in tokens.
        at_limit: Share of responses that reach `rollout.max_response_tokens` without their end token.
        success: Share of successful episodes.
        num_groups: Groups, of up to four members.
        num_differing: Groups whose members' returns differ.
        return_std: Mean over groups of the standard deviation of returns.
        seconds: Wall-clock seconds of playing.
        tokens_s: Response tokens per second.
        remarks: What the environment has to tell of them, such as requests that were refused.
    """

    num_episodes: int
    num_failed: int
    num_responses: int
    well_formed: float
    response_tokens: float
    at_limit: float
    success: float
    num_groups: int
    num_differing: int
    return_std: float
    seconds: float
    tokens_s: float
    remarks: tuple[str, ...] = ()

    @property
    def episode_s(self) -> float:
        """Seconds per episode, with as many at a time as here."""
        return self.seconds / self.num_episodes

    def advice(self, config: StarPOConfig, *, is_start: bool) -> list[str]:
        """Say what to change before training, most urgent first; empty if nothing stands out.

        Args:
            config: Settings of the run.
            is_start: Whether the first policy of the run played; otherwise its fine-tuning is still to come.
        """
        advice = []
        rollout = config.rollout
        if self.at_limit > _MANY_CUT and is_start:  # fine-tuning teaches the length too
            advice.append(
                f"{self.at_limit:.0%} of the responses are cut at their limit, and count as malformed: raise it (--set "
                f"rollout.max_response_tokens={2 * rollout.max_response_tokens}), ask for shorter ones in the prompt, "
                "or fine-tune"
            )
        if self.well_formed < _FEW_WELL_FORMED:
            advice.append(self._of_the_form(config, is_start))
        elif self.num_differing < _FEW_DIFFERING * self.num_groups:
            advice.append(
                "all members of most groups fare alike, and such a group teaches nothing: "
                + (
                    "this environment is solved, so take a harder one"
                    if self.success > _SOLVED
                    else "none succeeds, so take easier initial states, or fine-tune"
                    if self.success == 0
                    else f"raise rollout.temperature (now {rollout.temperature:g}) or rollout.group_size (now "
                    f"{rollout.group_size}), take easier initial states, or fine-tune"
                )
            )
        return advice

    def _of_the_form(self, config: StarPOConfig, is_start: bool) -> str:
        rate = f"only {self.well_formed:.0%} of the responses are well-formed"
        if not is_start:
            return f"{rate}; the fine-tuning is still to come, and teaches the form"
        if config.policy.type == "pretrained" and config.policy.fine_tuning is not None:
            return f"{rate} after fine-tuning: raise policy.fine_tuning.steps and demonstration_turns"
        if environment_type(config.environment.type).plays:
            return (
                f"{rate}: have the program say more plainly how to answer and call tools, lower rollout.temperature "
                f"(now {config.rollout.temperature:g}), or take a larger model (docs/programs.md)"
            )
        if environment_type(config.environment.type).demonstrator:
            return f"{rate}: fine-tune first, with a table [policy.fine_tuning] (docs/models.md)"
        return (
            f"{rate}, and '{config.environment.type}' has no demonstrator for a fine-tuning: state the form more "
            f"plainly (docs/prompts.md), lower rollout.temperature (now {config.rollout.temperature:g}), or take a "
            "larger model"
        )


def play_trial(
    config: StarPOConfig,
    folder: str,
    num_episodes: int,
    store: Store | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Trial:
    """Play episodes in this process.

    Args:
        config: Settings of the run. The torch engine plays, whatever `rollout.engine` is.
        folder: Local folder of the policy.
        num_episodes: Number of episodes, rounded up to whole groups of at most four.
        store: Passed to reward components that need it.
        tell: Called with a line for each incident, such as a refused request, also if no trial comes of the episodes.

    Raises:
        EngineError: If every episode ended by a fault of the environment.
        StarPOError: If the policy cannot be loaded, or a reward component fails.
    """
    from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer
    from starpo.ragen.agents.rollout.shards import make_episodes, play_shards, remarks_of
    from starpo.ragen.agents.rollout.torch.engine import TorchEngine
    from starpo.ragen.learning.reward.compute import compute_rewards

    environment = config.environment
    members = min(config.rollout.group_size, _MEMBERS, max(1, num_episodes // 2))  # at least two initial states
    num_groups = math.ceil(num_episodes / members)
    tags = config.environment.assign_parts(num_groups)
    groups = [
        (f"g{n:04d}", fresh_env_seed(config.environment, config.seed, "trial", n, excluded=frozenset(), tag=tags[n]))
        for n in range(num_groups)
    ]
    job = RolloutJob(
        folder=folder,
        checkpoint_key="trial",
        environment=config.environment,
        agent=config.agent,
        sampling=config.rollout.sampling,
        max_context_tokens=config.rollout.max_context_tokens,
    )
    engine = TorchEngine(num_threads=1)
    engine.load(job.folder, job.checkpoint_key)  # before the clock starts
    num_shards = 1 if Device.here().is_gpu else min(Runtime.current().threads, num_groups)
    shards = make_episodes(groups, members, math.ceil(num_groups / num_shards))

    def tell_incidents(turns: pa.Table) -> None:
        rows = pl.DataFrame(turns.select(["trajectory_id", "env_seed", "info"]))
        episodes = list(rows.group_by("trajectory_id", maintain_order=True).last().iter_rows())
        for incident in () if config.tags else environment_type(environment.type).incidents(environment, episodes):
            tell(incident)

    began = time.monotonic()
    turns = play_shards(LocalPlayer(engine, num_shards), job, shards, on_turns=tell_incidents)
    seconds = time.monotonic() - began
    types = {tag: part.type for tag, part in config.environment.tagged().items()} if config.tags else None
    rewards = compute_rewards(turns, config.reward, store, types)
    if pc.max(pc.list_value_length(turns["response_ids"])).as_py() == 0:
        raise EngineError(f"no episode got to its first response: all ended with status '{turns['status'][0]}'")
    remarks = () if config.tags else tuple(remarks_of(turns, config.environment.type))
    return _summarise(turns, rewards, seconds, remarks)


def _summarise(turns: pa.Table, rewards: pa.Table, seconds: float, remarks: tuple[str, ...] = ()) -> Trial:
    names = ["trajectory_id", "group_id", "response_ids", "format_ok", "finish_reason", "status", "success"]
    frame = pl.DataFrame(turns.select(names)).with_columns(pl.col("response_ids").list.len().alias("response"))
    answered = frame.filter(pl.col("response") > 0)
    episodes = frame.group_by("trajectory_id").agg(pl.col("success").any(), pl.col("status").last())
    returns = pl.DataFrame(rewards.select(["trajectory_id", "group_id", "trajectory_return", "is_valid"]))
    spread = (
        returns.filter("is_valid")
        .unique("trajectory_id")
        .group_by("group_id")
        .agg(pl.col("trajectory_return").std(ddof=0).alias("std"))["std"]
    )
    num_tokens = int(answered["response"].sum())
    return Trial(
        num_episodes=episodes.height,
        num_failed=episodes.filter(pl.col("status") == "env_error").height,
        num_responses=answered.height,
        well_formed=float(answered["format_ok"].mean()),  # type: ignore[arg-type]
        response_tokens=num_tokens / answered.height,
        at_limit=float((answered["finish_reason"] == "length").mean()),  # type: ignore[arg-type]
        success=float(episodes["success"].mean()),  # type: ignore[arg-type]
        num_groups=frame["group_id"].n_unique(),
        num_differing=int((spread > ZERO_VARIANCE_STD).sum()),
        return_std=float(spread.mean() or 0.0),  # type: ignore[arg-type]
        seconds=seconds,
        tokens_s=num_tokens / seconds,
        remarks=remarks,
    )
