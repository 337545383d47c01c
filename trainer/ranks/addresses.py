"""A training process's connections to others; heartbeats on `fleet` have their addresses.

A gang's first rank calls the trainer; the workers with other ranks call the worker with rank 0.
`fleet` keeps a killed process's last heartbeat; if its address does not answer, the next heartbeat
is tried.
"""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.network.addresses import connect_to
from seamlessflow.infra.network.line import Line, LineLost
from seamlessflow.infra.worker.roles import ENDED
from seamlessflow.schemas.records import Record, TrainerHeartbeat, WorkerHeartbeat
from seamlessflow.trainer.backends.calls import Hello, Welcome
from seamlessflow.trainer.backends.meeting import JOIN_S, Coming, WorkersAbsent, came
from seamlessflow.trainer.link import Channel

LIMIT_S = 600.0
_CONNECT_S = 10.0
_POLL_S = 0.2
_log = logging.getLogger(__name__)

_Beat = TypeVar("_Beat", TrainerHeartbeat, WorkerHeartbeat)
_Answer = TypeVar("_Answer")


class TrainerAbsent(SeamlessFlowError):
    """No trainer could be reached."""

    lasting = False

    def __init__(self, policy: str, waited_s: float, reason: str) -> None:
        self.policy = policy
        self.waited_s = waited_s
        self.reason = reason
        text = f"no trainer (python -m seamlessflow.trainer) of policy {policy} in {waited_s:.0f} s"
        super().__init__(f"{text}: {reason}" if reason else text)


class _Unanswered(Exception):
    """No answer within the limit."""


def connected(
    reader: Reader,
    fold: Callable[[Record], None],
    policy: str,
    hello: Callable[[str], Hello],
    stopping: Stopping,
) -> Channel:
    """Return a channel to the policy's trainer; read `fleet` until a trainer answers.

    `fold` gets each record that is read. `hello` makes the first message, from the trainer's token.
    Raises `TrainerAbsent`, at once when `stopping`.
    """

    def beat(record: Record) -> TrainerHeartbeat | None:
        fold(record)
        if isinstance(record, TrainerHeartbeat) and record.policy == policy:
            return record
        return None

    def call(trainer: TrainerHeartbeat) -> Channel | None:
        return None if trainer.ending else _opened(trainer, hello(trainer.token))

    began = time.monotonic()
    try:
        return _answered(reader, beat, call, LIMIT_S, stopping)
    except _Unanswered as error:
        raise TrainerAbsent(policy, time.monotonic() - began, str(error)) from error


def admitted(
    reader: Reader, policy: str, coming: Coming, stopping: Stopping
) -> tuple[Line, WorkerHeartbeat]:
    """Return the line to rank 0 in the policy's gang, and rank 0's heartbeat.

    Read `fleet` until rank 0 admits this worker. Raises `RankRefused`. Raises `WorkersAbsent`, at
    once when `stopping`.
    """

    def beat(record: Record) -> WorkerHeartbeat | None:
        if not isinstance(record, WorkerHeartbeat) or record.process != "train":
            return None
        return record if record.policy == policy and record.rendezvous else None

    def call(leader: WorkerHeartbeat) -> tuple[Line, WorkerHeartbeat] | None:
        ended = leader.state in (ENDED, "failed")
        return None if ended else (came(leader.rendezvous, coming), leader)

    try:
        return _answered(reader, beat, call, JOIN_S, stopping)
    except _Unanswered as error:
        reason = f"no worker with rank 0 of policy {policy} admits rank {coming.rank}"
        raise WorkersAbsent(f"{reason}: {error}") from error


def _answered(
    reader: Reader,
    beat: Callable[[Record], _Beat | None],
    call: Callable[[_Beat], _Answer | None],
    limit_s: float,
    stopping: Stopping,
) -> _Answer:
    """Return the first answer; each call goes to the newest heartbeat's process."""
    deadline = time.monotonic() + limit_s
    reason = "no heartbeat of it on fleet"
    while not stopping() and time.monotonic() < deadline:
        newest: _Beat | None = None
        for received in reader.poll(_POLL_S):
            newest = beat(received.record) or newest
        if newest is not None:
            try:
                if (answer := call(newest)) is not None:
                    return answer
                reason = "it has ended"
            except (OSError, ValueError, LineLost) as error:
                reason = str(error)
                _log.debug("no answer to %s", error)
    raise _Unanswered(reason)


def _opened(trainer: TrainerHeartbeat, hello: Hello) -> Channel:
    channel = Channel(connect_to(trainer.address, _CONNECT_S))
    try:
        channel.send(hello)
        answer, _ = channel.receive(_CONNECT_S)
        if not isinstance(answer, Welcome) or answer.trainer != trainer.trainer:
            raise ValueError(f"{trainer.address}: another program answers there")
    except BaseException:
        channel.close()
        raise
    return channel
