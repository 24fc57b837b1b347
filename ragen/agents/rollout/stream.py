"""One way to drive both kinds of session: requests go in, responses come out when they have ended.

RolloutSession   -> Rounds -> all that was submitted is answered together, in the order of submission
StreamingSession ----------> as it is
"""

from collections.abc import Sequence

from starpo.ragen.agents.rollout.engine import Request, Response, RolloutSession, StreamingSession
from starpo.ragen.core.errors import EngineError


def as_stream(session: RolloutSession | StreamingSession) -> StreamingSession:
    """The session as a streaming one."""
    return session if isinstance(session, StreamingSession) else Rounds(session)


class Rounds:
    """Implements `StreamingSession` by rounds: `finished` makes one call of `generate` of all that was submitted."""

    def __init__(self, session: RolloutSession) -> None:
        """Take a session into use."""
        self._session = session
        self._submitted: list[Request] = []

    def submit(self, requests: Sequence[Request]) -> None:
        """See `StreamingSession.submit`."""
        self._submitted += requests

    def finished(self) -> list[tuple[str, Response]]:
        """See `StreamingSession.finished`; all in flight, in the order in which they were submitted.

        Raises:
            EngineError: If the engine does not answer every request.
        """
        requests, self._submitted = self._submitted, []
        responses = self._session.generate(requests)
        if len(responses) != len(requests):
            raise EngineError(f"the engine gave {len(responses)} responses to {len(requests)} requests")
        return [(request.sequence_id, response) for request, response in zip(requests, responses, strict=True)]

    def usage(self) -> dict[str, float]:
        """Nothing that is worth counting."""
        return {}

    def close(self) -> None:
        """See `StreamingSession.close`."""
        self._submitted = []
        self._session.close()
