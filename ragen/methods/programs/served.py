"""What a trajectory's requests were: how many were refused, which, and why."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.core.visible import shortened
from starpo.ragen.methods.programs.chat import CALL_LIMIT, Refusal

MAX_NAMED = 10
"""Refused requests of a trajectory that are kept one by one; further ones are counted."""
_MAX_REASONS = 8
"""Different reasons kept of a trajectory's refusals."""
_MAX_REASON = 400
_MAX_BODY, _MAX_BODY_BYTES = 240, 8192
"""Of a refused request's body: characters that are shown, and bytes that are kept until then, so that a secret is
masked before it is cut."""


@dataclass(frozen=True)
class RefusedRequest:
    """A request that was refused.

    Attributes:
        request: Its number among the trajectory's requests, from 1.
        endpoint: Method and path, such as 'POST /v1/chat/completions'.
        field: The field of its body at fault; '' if it is none of them.
        reason: Why.
        body: The beginning of its body; empty if it was not read.
        num_bytes: Length of its body.
    """

    request: int
    endpoint: str
    field: str
    reason: str
    body: bytes = b""
    num_bytes: int = 0

    @property
    def facts(self) -> dict[str, Any]:
        """The same as JSON, without secrets and of limited length: programs choose these texts."""
        texts = {"endpoint": self.endpoint, "field": self.field, "reason": self.reason}
        facts = {name: without_secrets(text)[:_MAX_REASON] for name, text in texts.items()}
        return {"request": self.request} | facts | ({"body": self._shown_body} if self.body else {})

    @property
    def _shown_body(self) -> str:
        """Its body in one line: beginning and end, of a long one the beginning."""
        line = " ".join(without_secrets(self.body.decode("utf-8", "replace")).split())
        if len(self.body) == self.num_bytes:
            return shortened(line, _MAX_BODY)
        return f"{line[:_MAX_BODY]} ... [{self.num_bytes:,} bytes in all]"


@dataclass
class Served:
    """What a trajectory's requests were, answered or not.

    Attributes:
        num_requests: Number of requests, answered or not.
        num_refused: Number of requests that were refused, for whatever reason.
        refused: Reason -> how often a request was refused for it, of the first `_MAX_REASONS` reasons; not for a limit.
        limit: The limit of an episode for which the last one was refused; '' if none was.
        overridden: Sampling setting of the program's that had no effect -> in how many requests.
        named: The first `MAX_NAMED` refused requests, also those refused for a limit.
    """

    num_requests: int = 0
    num_refused: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    limit: str = ""
    overridden: Counter[str] = field(default_factory=Counter)
    named: list[RefusedRequest] = field(default_factory=list)

    def refuse(self, refusal: Refusal, endpoint: str = "", number: int = 0, body: bytes = b"") -> None:
        """Count a refusal.

        Args:
            refusal: What the program was told.
            endpoint: Method and path of the request.
            number: The request's number among those of the trajectory.
            body: The request's body, as far as it was read.
        """
        reason = str(refusal)
        self.num_refused += 1
        if len(self.named) < MAX_NAMED:
            start = body[:_MAX_BODY_BYTES]
            self.named.append(RefusedRequest(number, endpoint, refusal.param or "", reason, start, len(body)))
        if refusal.code == CALL_LIMIT:
            self.limit = reason
        elif reason in self.refused or len(self.refused) < _MAX_REASONS:
            self.refused[reason] += 1

    def copy(self) -> "Served":
        """Return a copy. Each part is copied at once: a request that is in progress may be counted at any time."""
        refused, overridden, named = Counter(dict(self.refused)), Counter(dict(self.overridden)), list(self.named)
        return Served(self.num_requests, self.num_refused, refused, self.limit, overridden, named)

    @property
    def reasons(self) -> list[str]:
        """Why requests were refused, the most frequent reason first; without secrets."""
        return [without_secrets(reason)[:_MAX_REASON] for reason, _ in self.refused.most_common()]
