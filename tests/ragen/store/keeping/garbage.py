"""Helpers that make garbage and list what is left of a store."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from starpo.ragen.store import Store
from starpo.ragen.store.remote.opening import open_location

MakeRun = Callable[..., list[tuple[str, str]]]
LATER = datetime.now(UTC) + timedelta(days=2)


def forget(store: Store, run: str) -> None:
    location = open_location(store.url)
    location.delete(file.path for file in location.files(f"runs/{run}"))
    location.remove_empty(f"runs/{run}")


def paths(store: Store) -> list[str]:
    return [file.path for file in open_location(store.url).files("") if not file.path.startswith("runs/")]
