"""The local server."""

from starpo.flows.cli.common import SERVE, app


@app.command(rich_help_panel=SERVE)
def up() -> None:
    """Start a local Prefect server and the process that serves the deployments."""
    from starpo.flows.console.up_and_down import start_here

    start_here()


@app.command(rich_help_panel=SERVE)
def down() -> None:
    """Stop what `up` started, running runs included; what they stored is kept."""
    from starpo.flows.console.up_and_down import stop_here

    stop_here()


@app.command(rich_help_panel=SERVE)
def serve() -> None:
    """Serve the deployments in this terminal, for a server that already runs."""
    from starpo.flows.serve import serve_deployments

    serve_deployments()
