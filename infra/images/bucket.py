"""Create the bucket of a store on S3, or test the guarantee that the store depends on.

    python bucket.py create s3://BUCKET/PREFIX     create the bucket; a no-op if it exists, or if the store is a folder
    python bucket.py check s3://BUCKET/PREFIX      eight clients race to create one object: exactly one may succeed

An artifact is committed by such a conditional write (`If-None-Match: *`). On a server that lets two clients succeed,
two runs could read different content under one key, without an error.
"""

import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any
from urllib.parse import urlsplit

NUM_CLIENTS = 8
NUM_ROUNDS = 5


def create(client: Any, bucket: str) -> str:
    """Create the bucket unless it exists."""
    try:
        client.head_bucket(Bucket=bucket)
    except client.exceptions.ClientError as error:
        if _status(error) != 404:
            raise
        client.create_bucket(Bucket=bucket)
        return f"bucket {bucket} created"
    return f"bucket {bucket} already exists"


def check(client: Any, bucket: str, prefix: str) -> str:
    """Let clients race to create new objects.

    Raises:
        SystemExit: If a race has not exactly one winner, or its object is not the winner's.
    """
    for _ in range(NUM_ROUNDS):
        key, line = f"{prefix}/check-{uuid.uuid4().hex}".lstrip("/"), Barrier(NUM_CLIENTS)

        def write(name: int, key: str = key, line: Barrier = line) -> bool:
            line.wait()
            try:
                client.put_object(Bucket=bucket, Key=key, Body=str(name).encode(), IfNoneMatch="*")
            except client.exceptions.ClientError as error:
                if _status(error) not in (409, 412):
                    raise
                return False
            return True

        with ThreadPoolExecutor(NUM_CLIENTS) as clients:
            winners = [name for name, won in enumerate(clients.map(write, range(NUM_CLIENTS))) if won]
        found = client.get_object(Bucket=bucket, Key=key)["Body"].read().decode()
        client.delete_object(Bucket=bucket, Key=key)
        if len(winners) != 1 or found != str(winners[0]):
            sys.exit(
                f"error: {NUM_CLIENTS} clients wrote {key} with If-None-Match: *, {len(winners)} succeeded; "
                f"expected exactly one. This server cannot hold a store that more than one process writes to"
            )
    return f"bucket {bucket}: one winner of {NUM_CLIENTS} conditional puts, {NUM_ROUNDS} times"


def _status(error: Any) -> int:
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


def main(verb: str, address: str) -> str:
    """Run the command, with the endpoint and the credentials of the standard AWS chain."""
    place = urlsplit(address)
    if place.scheme not in ("s3", "s3a"):
        return f"{address} is not a bucket: nothing to do"
    from botocore.config import Config
    from botocore.session import get_session

    client = get_session().create_client("s3", config=Config(max_pool_connections=NUM_CLIENTS))
    if verb == "create":
        return create(client, place.netloc)
    return check(client, place.netloc, place.path.strip("/"))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("create", "check"):
        sys.exit(__doc__)
    print(main(*sys.argv[1:]))
