"""Faults of four processes at once, around one turn: frozen, lost, retried, restarted, thawed."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from seamlessflow.infra.kafka.client import LogPartition
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.infra.settings import ENV_PREFIX
from seamlessflow.producers.gateway.calls.keys import derived_admin_key
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.topics import TRAJECTORIES
from tests import http
from tests.faults.driver import Driver
from tests.faults.faults import MANAGER, MOVING_WORKER, OTHERS, SCHEDULER
from tests.faults.faulty_run import FaultyRun, faulty_run
from tests.faults.log_watch import FEW, PARTITIONS

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
LIMIT_S = 90.0
SOON_S = 240.0
"""A transaction takes milliseconds, so many are missed where the cores are busy."""
COMMITTED_S = 0.5
POLL_S = 0.02
LOOKS = 10
AT_ONCE = 4
SILENCE_S = 5.0
GROUPS_PER_STEP = 16
"""So many that the worker samples for seconds between two steps."""
WORKER = "w1"
Client = tuple[str, str]
"""Id and key of a session."""


class Turn:
    """The long turn of one session, of an agent that retries it through the second gateway."""

    def __init__(self, run: FaultyRun, session: str, calls: ThreadPoolExecutor) -> None:
        self.run, self.session = run, session
        self.key: str = self.call("", session_id=session, policy="policy", purpose="eval")[
            "api_key"
        ]
        self.asked: list[str] = []
        self.text = calls.submit(self._ask)

    @property
    def partition(self) -> int:
        return partition_of(session_name(self.session), PARTITIONS)

    def call(self, path: str, url: str | None = None, **body: object) -> dict[str, Any]:
        """Make a call of the session API."""
        secret = self.run.config.gateway.secret.get_secret_value()
        headers = {"authorization": f"Bearer {derived_admin_key(secret)}"}
        url = f"{url or self.run.urls[0]}/sessions{path}"
        answer = http.post(url, json=body, headers=headers, timeout=LIMIT_S)
        read: dict[str, Any] = answer.raise_for_status().json()
        return read

    def records(self, kind: type[r.Record], mark: int = 0) -> list[Any]:
        """Return the session's records of a kind."""
        return self.run.log.since(
            mark, kind, lambda record: getattr(record, "session_id", "") == self.session
        )

    def samples_on(self, worker: str) -> bool:
        """Return whether the turn is in mid-stream on the worker."""
        if self.records(r.TurnCompleted) or len(self.records(r.TurnDispatched)) == 0:
            return False
        dispatch = self.records(r.TurnDispatched)[-1].dispatch
        given_back = any(record.dispatch == dispatch for record in self.records(r.TurnInterrupted))
        samples = [
            record for record in self.records(r.TurnProgressed) if record.dispatch == dispatch
        ]
        return not given_back and any(sample.worker == worker for sample in samples)

    def _ask(self) -> str:
        for url in (self.run.urls[0], *[self.run.urls[1]] * 20):
            self.asked.append(url)
            try:
                return _streamed(url, self.key, self.session)
            except (httpx.TransportError, httpx.HTTPStatusError):
                continue
        raise AssertionError(f"no answer: {self.asked}")


def _streamed(url: str, key: str, name: str) -> str:
    body = {
        "model": "policy",
        "stream": True,
        "messages": [{"role": "user", "content": "a long answer"}],
    }
    headers = {"authorization": f"Bearer {key}", "idempotency-key": name}
    text = ""
    with http.stream(
        "POST", f"{url}/v1/chat/completions", headers=headers, json=body, timeout=SILENCE_S
    ) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines():
            if line == "data: [DONE]":
                return text
            if line.startswith("data: "):
                chunk = json.loads(line.removeprefix("data: "))
                text += "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
    raise httpx.ReadError("the stream ended early")


@contextmanager
def peeking(run: FaultyRun, isolation: str) -> Iterator[Reader]:
    """Yield a reader of new trajectories."""
    options: dict[str, Any] = {"isolation.level": isolation}
    reader = Reader(run.kafka, "peek", **options)
    try:
        yield reader
    finally:
        reader.close()


def trajectory_places() -> list[LogPartition]:
    return [(TRAJECTORIES.name, n) for n in range(FEW[TRAJECTORIES.name].partitions)]


def manager_of(run: FaultyRun, partition: int) -> str:
    """Return the name of the process that owns a partition of `sessions`."""
    claims = run.log.since(0, r.PartitionClaimed, lambda claim: claim.partition == partition)
    for name in (MANAGER, OTHERS[MANAGER]):
        section = json.loads(run.launcher.running[name].spec.environment[f"{ENV_PREFIX}MANAGER"])
        if claims[-1].manager.startswith(f"manager-{section['slot']}-"):
            return name
    raise AssertionError(f"no process of {claims[-1].manager}")


def stop(run: FaultyRun, name: str, number: signal.Signals) -> int:
    pid = run.pid(name)
    assert pid is not None, name
    os.kill(pid, number)
    return pid


def freeze_in_transaction(
    run: FaultyRun, turns: list[Turn], sampling: Callable[[], bool]
) -> tuple[Turn, list[int]]:
    """Freeze the manager of a turn inside a transaction, and the worker that samples the turn.

    `sampling` begins turns anew once all have ended. Returns the turn and the processes. Thaws a
    manager that had committed before it stood still.
    """
    frozen_turns: list[tuple[Turn, list[int]]] = []
    with peeking(run, "read_uncommitted") as peek, peeking(run, "read_committed") as reader:
        peek.assign(peek.ends(trajectory_places()))

        def frozen() -> bool:
            owners = {number: manager_of(run, number) for number in range(PARTITIONS)}
            streaming = [candidate for candidate in turns if candidate.samples_on(WORKER)]
            item = next(reversed(peek.poll(POLL_S)), None) if streaming else None
            if item is None or not isinstance(item.record, r.Trajectory):
                return False
            # At once: a transaction takes milliseconds.
            manager = stop(run, owners[item.record.partition], signal.SIGSTOP)
            worker = stop(run, MOVING_WORKER, signal.SIGSTOP)
            place, at = (item.topic, item.partition), item.offset
            committed = run.happens(lambda: reader.ends([place])[place] > at, COMMITTED_S)
            owned = [
                candidate
                for candidate in streaming
                if owners[candidate.partition] == name_of(run, manager)
            ]
            for turn in owned:
                if not committed and turn.samples_on(WORKER):
                    frozen_turns.append((turn, [manager, worker]))
                    return True
            os.kill(worker, signal.SIGCONT)
            os.kill(manager, signal.SIGCONT)
            return False

        def soon() -> bool:
            return sampling() and any(frozen() for _ in range(LOOKS))

        run.until(soon, "a transaction", SOON_S)
    return frozen_turns[0]


def name_of(run: FaultyRun, pid: int) -> str:
    return next(name for name in run.launcher.running if run.pid(name) == pid)


def end(turn: Turn) -> None:
    """Compare the answer with the log; close the session through the second gateway."""
    completed = turn.records(r.TurnCompleted)
    assert turn.text.result() == orjson.loads(completed[0].message)["content"]
    turn.call(f"/{turn.session}/reward", turn.run.urls[1], value=1.0)
    turn.call(f"/{turn.session}/close", turn.run.urls[1])
    turn.run.until(lambda: bool(turn.records(r.Trajectory)), "its trajectory", LIMIT_S)


def test_a_turn_outlives_its_frozen_manager_its_lost_worker_its_gateway_and_the_scheduler(
    tmp_path: Path,
) -> None:
    with faulty_run(tmp_path, GROUPS_PER_STEP) as run, ThreadPoolExecutor(AT_ONCE) as calls:
        driver, log = Driver(run), run.log
        driver.start()
        turns: list[Turn] = []

        def sampling() -> bool:
            if not turns or all(long_turn.text.done() for long_turn in turns):
                first = len(turns)
                turns.extend(Turn(run, f"long-{first + n}", calls) for n in range(AT_ONCE))
            return any(long_turn.samples_on(WORKER) for long_turn in turns)

        run.until(sampling, "a turn in mid-stream", LIMIT_S)
        turn, frozen = freeze_in_transaction(run, turns, sampling)
        mark = log.mark
        owner = log.since(0, r.PartitionClaimed, lambda item: item.partition == turn.partition)[-1]

        def happened(kind: type[r.Record], **facts: object) -> bool:
            return any(
                all(getattr(record, name) == fact for name, fact in facts.items())
                for record in log.since(mark, kind)
            )

        run.until(
            lambda: happened(r.WorkerLost, worker=WORKER, process="rollout"), "its loss", LIMIT_S
        )
        stop(run, SCHEDULER, signal.SIGKILL)
        run.until(lambda: happened(r.SchedulerClaimed), "the scheduler's restart", LIMIT_S)
        run.until(
            lambda: happened(r.PartitionClaimed, partition=turn.partition), "a new owner", LIMIT_S
        )
        run.until(lambda: bool(turn.records(r.TurnJoined)), "the retry, perhaps before", LIMIT_S)
        run.until(lambda: bool(turn.records(r.TurnDispatched, mark)), "another worker", LIMIT_S)
        run.until(
            lambda: happened(r.RoleAssigned, worker=WORKER, role="train"), "preemption", LIMIT_S
        )
        mark = log.mark
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)

        run.until(turn.text.done, "the answer", LIMIT_S)
        run.until(
            lambda: happened(r.RoleAcquired, worker=WORKER, role="rollout"), "its return", LIMIT_S
        )
        assert turn.asked[0] != turn.asked[-1]
        end(turn)
        assert turn.records(r.SessionClosed)[0].epoch > owner.epoch
        driver.await_well()
        driver.audit()
