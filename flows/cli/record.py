"""`starpo record`: keep what an agent program says to a policy as a run, without training."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from starpo.flows.cli.import_ import Importer
from starpo.flows.cli.options import JsonOption, StoreOption, open_store, parse_overrides
from starpo.flows.console.documents.stores import RecordedRun
from starpo.flows.console.terminal import print_json, write
from starpo.ragen.config.load import apply_overrides
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.counts import counted
from starpo.ragen.core.errors import ConfigError
from starpo.tasks.loop.training import reward_and_filter

_RECORDING = "starpo.ragen.methods.programs.recording"  # a name, since it imports torch
_SHOWN_FAILURES = 3
_NO_TASK, _UNRATED = f"{_RECORDING}:NO_TASK", f"{_RECORDING}:unrated"


def record(
    run: Annotated[str, typer.Argument(help="Name of the new run.")],
    command: Annotated[
        list[str], typer.Argument(help="After --: the program, `module:function` or a command and its words.")
    ],
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            help="As policy.name_or_path; with --server, whose tokenizer and template count. Not for --protocol chat.",
        ),
    ] = None,
    teacher: Annotated[
        str | None, typer.Option("--teacher", help="module:function that answers instead (docs/tool-agents.md).")
    ] = None,
    new_policy: Annotated[
        Path | None,
        typer.Option("--new-policy", help="With --teacher: the folder of a new tiny policy, with its words."),
    ] = None,
    server: Annotated[
        str | None, typer.Option("--server", help="Address of an OpenAI-compatible server that answers instead.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Name of the model on that server.")] = None,
    protocol: Annotated[
        Literal["vllm", "completions", "chat"],
        typer.Option(
            "--protocol", help="As rollout.openai.protocol. chat: messages alone, of any model; its text is kept."
        ),
    ] = "vllm",
    tasks: Annotated[str, typer.Option("--tasks", help="As environment.tasks. Default: one task, {}.")] = _NO_TASK,
    reward: Annotated[
        str, typer.Option("--reward", help="output, or module:function. Default: episodes have no reward.")
    ] = _UNRATED,
    num_tasks: Annotated[int, typer.Option("--num-tasks", min=1, help="Different tasks to play.")] = 1,
    times: Annotated[int, typer.Option("--times", min=1, help="Episodes of each task.")] = 1,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="A setting, such as rollout.temperature=0.7, or a limit."),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep what an agent program says to a policy as a run, to audit, filter and fine-tune on; nothing is trained."""
    from starpo.ragen.methods.programs.recording import record as play

    kept = open_store(store)
    if run in kept.runs.names():
        raise ConfigError(f"run {run} is already in this store, and nothing was played: choose another name")
    is_chat = protocol == "chat"
    _check_players(policy, teacher, new_policy, server, is_chat)
    if (server is None) != (model is None):
        raise ConfigError("--server and --model go together: the address, and the name of the model there")
    is_function = len(command) == 1 and ":" in command[0]
    program = {"command": command[0] if is_function else command, "tasks": tasks, "reward": reward}
    settings: dict[str, Any] = {"environment": {"type": "program", **program}}
    if policy is not None:
        settings["policy"] = {"type": "pretrained", "name_or_path": policy}
    if server is not None:
        settings |= {
            "rollout.engine": "openai",
            "rollout.openai": {"base_url": server, "model": model, "protocol": protocol},
        }
    base = StarPOConfig.model_validate({"environment": {"type": "bandit"}})
    config = apply_overrides(base, settings | parse_overrides(set_), "the settings of `starpo record`")
    failures: Counter[str] = Counter()
    if new_policy is not None:
        from starpo.ragen.methods.programs.teacher import record_for_new_policy

        turns = record_for_new_policy(config, str(teacher), new_policy, num_tasks, times)
    else:
        with _player(config, teacher, is_chat) as (player, folder):
            turns = play(config, player, folder, num_tasks, times)
            failures = player.failures if is_chat else failures
    importer = Importer(kept, run)
    importer.take_table(turns, "recorded", is_paid=reward != _UNRATED, has_images=config.agent.shows_images)
    importer.reuse(0, "rollout", importer.rollouts[0])
    if importer.are_paid[0]:
        reward_and_filter(importer, config, 0, importer.rollouts[0])
    importer.record(None, config.model_dump(mode="json"), ["recorded"], "turns")
    num_failed = turns.filter(_has_failed(turns)).num_rows
    if as_json:
        print_json(
            RecordedRun(
                run=run,
                episodes=num_tasks * times,
                failed=num_failed,
                turns=turns.num_rows,
                server_errors=failures.total() if is_chat else None,
            )
        )
        return
    for reason, number in failures.most_common(_SHOWN_FAILURES):
        write(f"{counted(number, 'call')} failed at the server: {reason}")
    won = f", {sum(turns['success'].to_pylist())} successful" if importer.are_paid[0] else ""
    write(f"run {run}: {num_tasks * times} episodes{won}, {num_failed} failed, {turns.num_rows} turns.")
    write(f"Look at it: starpo report {run}; starpo audit {run}; starpo export {run}")


def _check_players(
    policy: str | None, teacher: str | None, new_policy: Path | None, server: str | None, is_chat: bool
) -> None:
    """Check that exactly one is named that answers, and a policy where tokens are kept.

    Raises:
        ConfigError: Otherwise.
    """
    if teacher is not None and server is not None:
        raise ConfigError("--teacher and --server both answer: leave one of them out")
    if new_policy is not None and teacher is None:
        raise ConfigError("--new-policy has random weights: let a --teacher answer, for it to imitate")
    if new_policy is not None and policy is not None:
        raise ConfigError("--policy exists, and --new-policy is made: leave one of them out")
    if is_chat and server is None:
        raise ConfigError("--protocol chat is how a server is asked: name it with --server and --model")
    if is_chat and policy is not None:
        raise ConfigError("--protocol chat asks with messages, and needs no policy: leave --policy out")
    if not is_chat and policy is None and new_policy is None:
        raise ConfigError(
            "--policy is missing: the policy that plays, or with --server or --teacher the one whose tokenizer and "
            "template count. A teacher may have a --new-policy made; a server that takes messages alone is recorded "
            "without one: --protocol chat"
        )


@contextmanager
def _player(config: StarPOConfig, teacher: str | None, is_chat: bool) -> Iterator[tuple[Any, str]]:
    """Context manager: what plays, and the folder of its policy, '' if a server is asked with messages."""
    if is_chat:
        from starpo.ragen.methods.programs.relay import RelayPlayer

        yield RelayPlayer(config.rollout.openai), ""  # type: ignore[attr-defined]
        return
    from starpo.ragen.agents.policy.source import resolve_policy
    from starpo.ragen.runs.placement import ModelPlacement

    folder = resolve_policy(config.policy)  # type: ignore[arg-type]
    if teacher is not None:
        from starpo.ragen.methods.programs.teacher import TeacherPlayer

        yield TeacherPlayer(teacher), folder
        return
    with ModelPlacement(is_here=True) as placement:
        yield placement.players.player(config.rollout, 1), folder


def _has_failed(turns: Any) -> Any:
    import pyarrow.compute as pc

    return pc.equal(turns["status"], "env_error")
