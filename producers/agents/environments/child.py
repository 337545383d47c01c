"""An environment package's process, as the agents' process sees it: starts, runs, ends.

`inside/host.py` lists the lines that both exchange. When the process ends, what it left behind is
removed too: programs that it started (`leftovers.py`), and its folder for temporary files.
"""

import asyncio
import json
import socket
from asyncio import Future, StreamReader, StreamWriter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seamlessflow.infra.child import ChildProcess
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.settings import ENV_PREFIX
from seamlessflow.producers.agents.environments.inside.host import LONGEST_LINE_BYTES
from seamlessflow.producers.agents.environments.known import HOST
from seamlessflow.producers.agents.environments.leftovers import EnvironmentFolder, LeftBehind

ENDING_GRACE_S = 5.0
_LOOK_S = 1.0
"""A process may end while its connection stays open. It is looked at this often."""


class EnvironmentUnusable(SeamlessFlowError):
    """The environment cannot be made from its settings, or its package is not there."""

    lasting = True


class EnvironmentGone(SeamlessFlowError):
    """The environment's process ended while an episode ran in it: not the episode's fault."""


class EpisodeFailed(SeamlessFlowError):
    """An episode raised an exception, whose own text is the message."""

    def __init__(self, error: str, infrastructure: bool, refused: bool) -> None:
        self.infrastructure = infrastructure
        """True if a call got a server's error or no response; else the environment failed."""
        self.refused = refused
        """True if a call was refused, which the policy may have caused."""
        super().__init__(error)


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """An environment process's program, settings and variables."""

    name: str
    python: Path
    adapter: Path
    settings: Mapping[str, Any]
    environment: Mapping[str, str] = field(repr=False)
    """The process's environment variables. This project's settings are not passed on."""
    log_file: Path
    roles: tuple[str, ...] = ()
    """Each episode's roles; none: it has one session."""
    note: str = ""
    """A remark on its Python, for example another package version. Logged, and added to errors."""
    any_roles: bool = False
    """True if episodes have whatever roles the environment has."""

    def first_line(self, tasks: bool) -> Mapping[str, Any]:
        """Return the first message to the process."""
        return {"settings": dict(self.settings), **({"tasks": True} if tasks else {})}


class EnvironmentChild:
    """A started process, and the episodes that run in it. For one event loop."""

    def __init__(
        self,
        process: ChildProcess,
        lines: StreamReader,
        out: StreamWriter,
        spec: EnvironmentSpec,
        folder: EnvironmentFolder,
    ) -> None:
        self.concurrent = 0
        """Episodes that it may run at once; 0: no limit."""
        self.roles: tuple[str, ...] = ()
        """Each episode's roles, known once the process is warm."""
        self._process = process
        self._lines = lines
        self._out = out
        self._spec = spec
        self._folder = folder
        self._episodes: dict[int, Future[object]] = {}
        self._count = 0
        self._reading: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, spec: EnvironmentSpec, tasks: bool = False) -> "EnvironmentChild":
        """Start the process and send it its settings. Raises `EnvironmentUnusable`."""
        ours, theirs = socket.socketpair()
        spec.log_file.parent.mkdir(parents=True, exist_ok=True)
        command = [str(spec.python), "-P", str(HOST), str(theirs.fileno()), str(spec.adapter)]
        folder = EnvironmentFolder()
        variables = {**_passed_on(spec), **folder.variables}
        with theirs:
            try:
                process = ChildProcess(
                    command, spec.log_file, variables, sockets=(theirs.fileno(),)
                )
            except OSError as error:
                ours.close()
                folder.remove()
                raise EnvironmentUnusable(f"{spec.name}: {spec.python}: {error}") from error
        lines, out = await asyncio.open_connection(sock=ours, limit=LONGEST_LINE_BYTES)
        child = cls(process, lines, out, spec, folder)
        child._send(spec.first_line(tasks))
        return child

    async def warm_up(self, limit_s: float) -> None:
        """Wait until it can run episodes. Raises `EnvironmentUnusable`; the process is then ended.

        The wait has a deadline: packages install or compile at their first episode.
        """
        try:
            async with asyncio.timeout(limit_s):
                answer = await self._answer()
        except TimeoutError as error:
            await self.close()
            reason = f"{self._spec.name} was not ready within {limit_s:g} s"
            raise EnvironmentUnusable(f"{reason}; see {self._spec.log_file}") from error
        ready = answer["ready"]
        self.roles = tuple(ready["roles"])
        if not self._spec.any_roles and {*self.roles} != {*self._spec.roles}:
            await self.close()
            plays = ", ".join(self.roles) or "one session an episode"
            named = ", ".join(self._spec.roles) or "none"
            raise EnvironmentUnusable(f"{self._spec.name}: it has {plays}; agents.roles: {named}")
        self.concurrent = int(ready["concurrent"])
        self._reading = asyncio.create_task(self._read())
        self._watch = asyncio.create_task(self._end_reading())

    async def listed(self) -> Mapping[str, Any] | None:
        """Return the next task that it lists, or None at the end. Raises `EnvironmentUnusable`."""
        return (await self._answer()).get("task")

    @property
    def running(self) -> bool:
        """True while episodes can be run in it."""
        return self._process.running and self._reading is not None and not self._reading.done()

    @property
    def room(self) -> bool:
        """True if it may run one more episode."""
        return self.running and (not self.concurrent or len(self._episodes) < self.concurrent)

    @property
    def begun(self) -> int:
        """Count of the episodes begun in it."""
        return self._count

    def __len__(self) -> int:
        """Return how many episodes run."""
        return len(self._episodes)

    def left_behind(self) -> LeftBehind:
        """Return its programs and files that are still there, also after its end."""
        return self._folder.left_behind(self._process.pid)

    async def run(self, task: bytes, sessions: Mapping[str, Any]) -> object:
        """Run an episode and return its result. Raises `EpisodeFailed` and `EnvironmentGone`.

        `sessions`: the message's member `session`, or `sessions` by role. Cancelling stops the
        episode.
        """
        self._count += 1
        number = self._count
        ended = self._episodes[number] = asyncio.get_running_loop().create_future()
        head = json.dumps({"run": number, **sessions}).encode()
        self._out.write(head[:-1] + b', "task": ' + task.replace(b"\n", b" ") + b"}\n")
        try:
            await self._out.drain()
            return await ended
        except ConnectionError as error:
            raise self._gone() from error
        except asyncio.CancelledError:
            self._send({"stop": number})
            raise
        finally:
            del self._episodes[number]

    async def close(self) -> None:
        """End the process and what it started: ask it, then use force."""
        self._out.close()  # the end of its input
        ended = await asyncio.to_thread(self._process.wait, ENDING_GRACE_S)
        await asyncio.to_thread(self._folder.end_leftovers, self._process.pid)
        if not ended:
            await asyncio.to_thread(self._process.kill)
        await asyncio.to_thread(self._folder.remove)
        if self._reading is not None and self._watch is not None:
            await self._reading
            self._watch.cancel()

    def _send(self, message: Mapping[str, Any]) -> None:
        self._out.write(json.dumps(message).encode() + b"\n")

    async def _answer(self) -> Mapping[str, Any]:
        """Return its next message. Raises `EnvironmentUnusable` if it says so, or has ended."""
        line = await _line_of(self._lines)
        answer = json.loads(line) if line else {"unusable": self._process_tail()}
        if "unusable" not in answer:
            return dict(answer)
        await self.close()
        note = f" ({self._spec.note})" if self._spec.note else ""
        raise EnvironmentUnusable(f"{self._spec.name}: {str(answer['unusable']).strip()}{note}")

    async def _read(self) -> None:
        """Deliver results until the process ends; then fail the episodes that still run."""
        while line := await _line_of(self._lines):
            answer = json.loads(line)
            number = answer.get("ended", answer.get("failed"))
            ended = self._episodes.get(number)
            if ended is None or ended.done():
                continue
            if "failed" in answer:
                failed = EpisodeFailed(
                    answer["error"].strip(),
                    infrastructure=answer["infrastructure"],
                    refused=answer["refused"],
                )
                ended.set_exception(failed)
            else:
                ended.set_result(answer["result"])
        await asyncio.to_thread(self._process.wait, ENDING_GRACE_S)  # for its exit status
        for ended in self._waiting():
            ended.set_exception(self._gone())

    async def _end_reading(self) -> None:
        """End the reading when the process ends: its forks may hold the connection open."""
        while self._process.running:
            await asyncio.sleep(_LOOK_S)
        await asyncio.sleep(_LOOK_S)  # what it wrote before its end is read first
        self._lines.feed_eof()

    def _waiting(self) -> Iterator[Future[object]]:
        return (ended for ended in list(self._episodes.values()) if not ended.done())

    def _gone(self) -> EnvironmentGone:
        status = self._process.exit_status
        ended = "ended" if status is None else f"ended with status {status}"
        return EnvironmentGone(f"the process of {self._spec.name} {ended}\n{self._process.tail()}")

    def _process_tail(self) -> str:
        self._process.wait(ENDING_GRACE_S)
        return f"it ended with status {self._process.exit_status}\n{self._process.tail()}"


async def _line_of(lines: StreamReader) -> bytes:
    """Return the next line; empty once the process is gone."""
    try:
        line = await lines.readline()
    except (ConnectionError, ValueError):  # a line above the limit
        return b""
    return line if line.endswith(b"\n") else b""


def _passed_on(spec: EnvironmentSpec) -> Mapping[str, str]:
    return {
        name: value
        for name, value in spec.environment.items()
        if not name.startswith(ENV_PREFIX) and name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
