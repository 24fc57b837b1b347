"""Access to the stored run of the report's tests."""

from starpo.ragen.store import Store


def rows(store: Store, iteration: int, stage: str, kind: str) -> list[dict]:
    return store.read_table(kind, store.runs.iteration("hostile", iteration)[stage][kind]).to_pylist()
