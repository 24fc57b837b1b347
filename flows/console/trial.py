"""`starpo validate --play`: the episodes of a trial."""

from starpo.flows.console.documents.planning import FirstEpisodes
from starpo.flows.console.terminal import Console, say
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.counts import counted, duration
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.sizing.hours import num_episodes_of
from starpo.ragen.store import Store
from starpo.ragen.trial import Trial, play_trial


def show_trial(config: StarPOConfig, num_episodes: int, store: Store) -> None:
    """Play a trial, and print what it showed, the hours that a run would take, and advice.

    Raises:
        ConfigError: If the embedded policy is to play, and the store does not have it.
    """
    console = Console()
    trial, is_start, name = _play(config, num_episodes, store, console)
    for line in describe(trial, config, name):
        say(console, line)
    for advice in trial.advice(config, is_start=is_start):
        say(console, f"advice: {advice}")


def first_episodes(config: StarPOConfig, num_episodes: int, store: Store) -> FirstEpisodes:
    """Play a trial, for machines; see `show_trial`."""
    trial, is_start, name = _play(config, num_episodes, store, Console(stderr=True))
    return FirstEpisodes(
        policy=name,
        trial=trial,
        rollout_seconds=num_episodes_of(config) * trial.episode_s,
        advice=trial.advice(config, is_start=is_start),
    )


def _play(config: StarPOConfig, num_episodes: int, store: Store, console: Console) -> tuple[Trial, bool, str]:
    """Return what the first policy's episodes showed, whether it is that one, and its name for people."""
    with ModelPlacement() as placement:
        folder, is_start, name = _first_policy(config, store, placement)
        with console.status(f"playing {counted(num_episodes, 'episode')}"):
            trial = play_trial(config, folder, num_episodes, store, lambda line: say(console, f"refused: {line}"))
    return trial, is_start, name


def describe(trial: Trial, config: StarPOConfig, name: str) -> list[str]:
    """Return what a trial showed, a line each."""
    failed = f"; {trial.num_failed} ended by a fault of the environment" if trial.num_failed else ""
    return [
        f"{name} played {counted(trial.num_episodes, 'episode')} in {trial.seconds:.1f} s{failed}",
        f"  well-formed  {trial.well_formed:.0%} of {counted(trial.num_responses, 'response')}",
        f"  length       {trial.response_tokens:.0f} tokens in the mean; {trial.at_limit:.0%} reach the limit of "
        f"{config.rollout.max_response_tokens}",
        f"  success      {trial.success:.0%} of the episodes",
        f"  returns      differ in {trial.num_differing} of {counted(trial.num_groups, 'group')}; their std is "
        f"{trial.return_std:.3g} in the mean",
        *(f"  remark       {remark}" for remark in trial.remarks),
        f"  speed        {trial.tokens_s:,.0f} tokens/s",
        f"  the run      about {duration(num_episodes_of(config) * trial.episode_s)} of rollouts and evaluations at "
        "this speed; more episodes at a time are faster, and updates come on top (starpo plan --speed-of RUN)",
    ]


def _first_policy(config: StarPOConfig, store: Store, placement: ModelPlacement) -> tuple[str, bool, str]:
    """Return a folder with the run's first policy, whether it is that one, and its name for people."""
    from starpo.tasks.warm_start import warm_start

    first = warm_start(config)
    if first.is_stored(store):
        return (
            placement.learner.policy_folder(store, first.keys["checkpoint"]),
            True,
            "the stored first policy of this run",
        )
    if config.policy.type == "tiny":
        raise ConfigError(
            "--play needs the embedded policy, which its warm start makes: run `starpo train` with these settings and "
            "--iterations 0 first, or give the --store that has it"
        )
    from starpo.ragen.agents.policy.source import resolve_policy

    is_start = config.policy.fine_tuning is None
    name = config.policy.name_or_path
    return resolve_policy(config.policy), is_start, name if is_start else f"{name}, not fine-tuned yet,"
