"""Health check: `python answers.py http://host:port/path | tcp://host:port` exits with 0 if it answers, else with 1."""

import socket
import sys
import urllib.error
import urllib.request
from urllib.parse import urlsplit

PATIENCE_S = 5


def answers(address: str) -> bool:
    """Whether an HTTP address responds with 200, or a TCP address accepts a connection."""
    parts = urlsplit(address)
    try:
        if parts.scheme == "tcp":
            socket.create_connection((parts.hostname, parts.port), PATIENCE_S).close()
            return True
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError, urllib.error.URLError):
        return False


if __name__ == "__main__":
    sys.exit(0 if answers(sys.argv[1]) else 1)
