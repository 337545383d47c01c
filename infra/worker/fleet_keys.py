"""Keys of the records that a worker's processes read from `fleet`. Pure.

Each of a thousand workers sends two heartbeats a second. A worker does not even decode those of
others.
"""

from collections.abc import Callable

_OF_WORKERS = (b"WorkerHeartbeat/", b"WorkerAssignment/")
_OF_OTHERS = (b"GatewayHeartbeat/", b"ManagerStarted/")


def of_worker(worker: str) -> Callable[[bytes], bool]:
    """Return a function that says if the processes of the worker read a record with this key."""
    beats, assignment = f"WorkerHeartbeat/{worker}/".encode(), f"WorkerAssignment/{worker}".encode()

    def wanted(key: bytes) -> bool:
        if key.startswith(_OF_WORKERS):
            return key.startswith(beats) or key == assignment
        return not key.startswith(_OF_OTHERS)

    return wanted
