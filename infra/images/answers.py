"""Does something answer there? `python answers.py http://host:port/path | tcp://host:port`: exit code 0, or 1."""

import socket
import sys
import urllib.error
import urllib.request
from urllib.parse import urlsplit

PATIENCE_S = 5


def answers(address: str) -> bool:
    """Whether an address of HTTP says 200, or one of TCP accepts a connection."""
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
