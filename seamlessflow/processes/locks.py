"""A run's locks: on its directory, and on its topics in the user's own Kafka.

Two commands in one directory would take over each other's sessions and workers. In two directories
they would mix on the topics. The kernel frees a directory when the command that holds it ends, in
any way. The topics are held by membership in the Kafka consumer group `run`. A killed command
leaves the group once the session time-out has passed. It blocks no later start for longer.
"""

import fcntl
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from seamlessflow.access import RUN_GROUP
from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.errors import KafkaRefused, SeamlessFlowError, SettingsRejected
from seamlessflow.infra.kafka.start.members import Presence, client_ids
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import CONTROL

RUN = "run"
JOIN_S = 30.0
_LOOK_S = 0.5
_MARGIN_S = 3.0
_log = logging.getLogger(__name__)


class RunUnderWay(SeamlessFlowError):
    """A directory in which another command runs."""

    lasting = True

    def __init__(self, out: Path, owner: str) -> None:
        self.out = out
        self.owner = owner
        super().__init__(
            f"{out}: another command runs there ({owner}), which this one would take over: end "
            "that first, or set out to another directory"
        )


@contextmanager
def only_run(out: Path, name: str = RUN) -> Iterator[None]:
    """Hold the lock of a directory, which is made if it is missing.

    Raises `RunUnderWay`, and `SettingsRejected` if nothing can be written there. If the file system
    has no locks, nothing is held.
    """
    with _opened(out, name) as file:
        _lock(out, file)
        file.truncate(0)
        file.write(f"process {os.getpid()} of {socket.gethostname()}".encode())
        file.flush()
        yield


def refuse_running(out: Path) -> None:
    """Raise `RunUnderWay` if a command runs in the directory."""
    if _file(out, RUN).is_file():
        with _file(out, RUN).open("r+b") as file:
            _lock(out, file)


class TopicsInUse(SeamlessFlowError):
    """Topics to which another directory's command writes."""

    lasting = True

    def __init__(self, prefix: str, owner: str) -> None:
        self.prefix = prefix
        self.owner = owner
        super().__init__(
            f"kafka.topic_prefix {prefix!r}: another run writes to these topics ({owner}), which "
            "this one would take over: end that first, or set another kafka.topic_prefix"
        )


def owner_of(out: Path, begun_s: float) -> str:
    """Return the name of this command in the group; other commands show it."""
    begun = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(begun_s))
    return f"process {os.getpid()} of {_place(out)} since {begun} UTC"


def others(owners: Iterable[str], out: Path) -> list[str]:
    """Return other directories' commands, in the order of their start.

    A command from this directory is dead, since this command holds the directory's lock. Pure.
    """
    alive = [owner for owner in owners if f" of {_place(out)} since " not in owner]
    return sorted(alive, key=_begun)


@contextmanager
def only_run_on(
    settings: KafkaSettings, out: Path, stopping: Stopping, clock: Callable[[], float] = time.time
) -> Iterator[None]:
    """Hold a prefix's topics for the directory, whose own lock is held already.

    If they are in use, waits as long as a killed command may seem to hold them, then raises
    `TopicsInUse`. A user who may not join the group holds nothing.
    """
    try:
        _await_free(settings, out, stopping)
        owner = owner_of(out, clock())
        member = Presence(settings, RUN_GROUP, CONTROL, owner)
    except KafkaRefused as error:
        _log.warning("a second run on these topics would not be noticed: %s", error)
        yield
        return
    try:
        _check_first(settings, out, owner, stopping)
        yield
    finally:
        member.close()


def _file(out: Path, name: str) -> Path:
    return out / f"{name}.lock"


def _opened(out: Path, name: str) -> BinaryIO:
    """Return a lock's open file in the directory. Raises `SettingsRejected`."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        return _file(out, name).open("a+b")
    except OSError as error:
        reason = f"nothing can be written in {out}: {error.strerror}"
        raise SettingsRejected("out", reason) from error


def _lock(out: Path, file: BinaryIO) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        owner = file.read(200).decode(errors="replace") or "it starts"
        raise RunUnderWay(out, owner) from None
    except OSError:  # no locks there
        return


def _await_free(settings: KafkaSettings, out: Path, stopping: Stopping) -> None:
    """Wait until no other directory's command is in the group. Raises `TopicsInUse`."""
    deadline_s = time.monotonic() + settings.session_timeout_s + _MARGIN_S
    while holders := others(client_ids(settings, RUN_GROUP), out):
        if time.monotonic() > deadline_s:
            raise TopicsInUse(settings.topic_prefix, holders[0])
        if stopping():
            return
        time.sleep(_LOOK_S)


def _check_first(settings: KafkaSettings, out: Path, owner: str, stopping: Stopping) -> None:
    """Wait until this command is in the group.

    Raises `TopicsInUse` if another command that began at the same moment comes before it.
    """
    deadline_s = time.monotonic() + JOIN_S
    while owner not in (members := client_ids(settings, RUN_GROUP)):
        if stopping() or time.monotonic() > deadline_s:
            _log.warning("group %s was not joined: a second run would not be noticed", RUN_GROUP)
            return
        time.sleep(_LOOK_S)
    first = min([*others(members, out), owner], key=_begun)
    if first != owner:
        raise TopicsInUse(settings.topic_prefix, first)


def _begun(owner: str) -> tuple[str, str]:
    return owner.rpartition(" since ")[2], owner


def _place(out: Path) -> str:
    return f"{socket.gethostname()}, out {out.resolve()},"
