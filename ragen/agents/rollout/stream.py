"""One interface for both kinds of session: requests are submitted, and responses are returned when they have ended.

RolloutSession   -> Rounds -> all submitted requests are answered together, in the order of submission
StreamingSession ----------> unchanged
"""

from collections.abc import Sequence

from starpo.ragen.agents.rollout.engine import Request, Response, RolloutSession, StreamingSession
from starpo.ragen.core.errors import EngineError


def as_stream(session: RolloutSession | StreamingSession) -> StreamingSession:
    """Return the session as a streaming one."""
    return session if isinstance(session, StreamingSession) else Rounds(session)


class Rounds:
    """Implements `StreamingSession` in rounds: `finished` calls `generate` once with all submitted requests."""

    def __init__(self, session: RolloutSession) -> None:
        """Wrap a session."""
        self._session = session
        self._submitted: list[Request] = []

    def submit(self, requests: Sequence[Request]) -> None:
        """See `StreamingSession.submit`."""
        self._submitted += requests

    def finished(self) -> list[tuple[str, Response]]:
        """See `StreamingSession.finished`; returns all requests in flight, in the order of submission.

        Raises:
            EngineError: If the engine does not answer every request.
        """
        requests, self._submitted = self._submitted, []
        responses = self._session.generate(requests)
        if len(responses) != len(requests):
            raise EngineError(f"the engine gave {len(responses)} responses to {len(requests)} requests")
        return [(request.sequence_id, response) for request, response in zip(requests, responses, strict=True)]

    def usage(self) -> dict[str, float]:
        """Return an empty dict: nothing is counted."""
        return {}

    def close(self) -> None:
        """See `StreamingSession.close`."""
        self._submitted = []
        self._session.close()
