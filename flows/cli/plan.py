"""What a run will need, before it starts."""

from typing import Annotated

import typer

from starpo.flows.cli.common import BEFORE, JsonOption, SetOption, app, parse_overrides


@app.command(rich_help_panel=BEFORE)
def plan(
    preset: Annotated[str, typer.Argument(help="Preset, or a TOML file of settings.")],
    set_: SetOption = None,
    gpu: Annotated[
        str | None, typer.Option(help="A GPU such as a100-80gb or h100-80gb; cpu. Default: this machine's.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="How many of them; of cpu: cores.")] = None,
    gpu_memory: Annotated[str | None, typer.Option(help="Memory of one, such as 80GB, where it is another.")] = None,
    response_share: Annotated[
        float | None, typer.Option(min=0.01, max=1.0, help="Mean response as a share of the longest. Default: 0.5.")
    ] = None,
    decode_rate: Annotated[
        float | None, typer.Option(min=1.0, help="Tokens a second of the rollout, where you have measured it.")
    ] = None,
    train_rate: Annotated[
        float | None, typer.Option(min=1.0, help="Tokens a second of training, where you have measured it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a run will need: memory part by part, GPUs, tokens, seconds, storage; and whether it fits."""
    from starpo.flows.console.plan import print_plan
    from starpo.flows.presets import preset as load_preset

    print_plan(
        preset,
        load_preset(preset, parse_overrides(set_)),
        gpu=gpu,
        number=gpus,
        gpu_memory=gpu_memory,
        response_share=response_share,
        decoded_tokens_s=decode_rate,
        trained_tokens_s=train_rate,
        as_json=as_json,
    )
