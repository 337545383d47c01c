"""Load generator: connections that send the next call as soon as the last is answered.

Reads its orders as JSON from standard input, prints `begin` after the warm-up, `end` after the
measured time, and then the result as JSON. `measured_load.py` starts it as a process.
"""

import asyncio
import json
import re
import resource
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import cast

import uvloop

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length: "
_LAST_CHUNK = b"0\r\n\r\n"
_USED = b'"completion_tokens":'
SESSION = "<session>"
"""Text in a body that each session replaces by its own number, so that all prompts differ."""


@dataclass
class Load:
    """Orders and results. Each session sends all `bodies`, one after the other."""

    host: str
    port: int
    connections: int
    warm_up_s: float
    seconds: float
    tokens: list[str]
    bodies: list[str]
    latencies: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)
    """Seconds until the first bytes of streamed answers."""
    completions: list[int] = field(default_factory=list)
    """Tokens in each answer by its own account; 0 if it has none."""
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sessions = deque(enumerate(self.tokens))
        self.measuring = False
        self.ended = False

    def requests(self, number: int, token: str) -> list[bytes]:
        """Return all calls of one session."""
        bodies = [body.replace(SESSION, str(number)) for body in self.bodies]
        return [
            (
                f"POST /v1/chat/completions HTTP/1.1\r\nhost: {self.host}\r\n"
                f"authorization: Bearer {token}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\n\r\n{body}"
            ).encode()
            for body in bodies
        ]


class Connection(asyncio.Protocol):
    """Connection with one call at a time."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._pending: list[bytes] = []
        self._received = b""
        self._sent_at = 0.0
        self._first_at = 0.0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._first_at = self._first_at or time.perf_counter()
        self._received += data
        head, end, body = self._received.partition(_HEAD_END)
        if not end:
            return
        place = head.find(_LENGTH)
        if place < 0:
            whole = body.endswith(_LAST_CHUNK)
        else:
            whole = len(body) >= int(head[place + len(_LENGTH) :].partition(b"\r\n")[0])
        if whole:
            self._answered(head, body, streamed=place < 0)

    def connection_lost(self, _: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def _answered(self, head: bytes, body: bytes, *, streamed: bool) -> None:
        now, first_at = time.perf_counter(), self._first_at
        self._received, self._first_at = b"", 0.0
        if not head.startswith(b"HTTP/1.1 200"):
            self._load.failures.append(body[:200].decode())
        elif self._load.measuring:
            self._load.latencies.append(now - self._sent_at)
            self._load.completions.append(_completion(body))
            if streamed:
                self._load.firsts.append(first_at - self._sent_at)
        self._send()

    def _send(self) -> None:
        load = self._load
        if not self._pending and load.sessions:
            self._pending = load.requests(*load.sessions.popleft())[::-1]
        if load.ended or not self._pending:
            self._transport.close()
            return
        self._sent_at = time.perf_counter()
        self._transport.write(self._pending.pop())


async def run(load: Load) -> dict[str, object]:
    """Run the load to its end; return the result."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_fail)
    made = [
        await loop.create_connection(lambda: Connection(load), load.host, load.port)
        for _ in range(load.connections)
    ]
    done = asyncio.gather(*(connection.done for _, connection in made))
    await asyncio.sleep(load.warm_up_s)
    print("begin", flush=True)
    load.measuring = True
    began, used = time.perf_counter(), _cpu_s()
    await asyncio.wait({done}, timeout=load.seconds)
    seconds, used = time.perf_counter() - began, _cpu_s() - used
    print("end", flush=True)
    load.measuring, load.ended = False, True
    await asyncio.wait({done}, timeout=10)
    return _summary(load, seconds, used)


def _fail(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    loop.default_exception_handler(context)
    sys.exit(1)


def _summary(load: Load, seconds: float, cpu_s: float) -> dict[str, object]:
    count = len(load.latencies)
    return {
        "seconds": seconds,
        "requests": count,
        "completion_tokens": sum(load.completions),
        "failures": len(load.failures),
        "failure": load.failures[0] if load.failures else "",
        "requests_per_s": round(count / seconds),
        "p50_ms": _ms(load.latencies, 50),
        "p99_ms": _ms(load.latencies, 99),
        "first_p50_ms": _ms(load.firsts, 50),
        "first_p99_ms": _ms(load.firsts, 99),
        "client_cpu_us": round(1e6 * cpu_s / count, 1) if count else None,
    }


def _completion(body: bytes) -> int:
    """Return the sampled tokens that an answer counts last; 0 if it has no count."""
    place = body.rfind(_USED)
    return int(re.split(rb"[,}]", body[place + len(_USED) :], maxsplit=1)[0]) if place >= 0 else 0


def _ms(seconds: list[float], percent: int) -> float | None:
    return round(1000 * sorted(seconds)[len(seconds) * percent // 100], 3) if seconds else None


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    orders = Load(**json.load(sys.stdin))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(run(orders))), flush=True)
