"""`ragen serve`."""

from starpo.flows.serve import serve_deployments


def serve() -> None:
    """Serve the deployments in this terminal, for a server that is already running."""
    serve_deployments()
