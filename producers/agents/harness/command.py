"""Programs as agents: each runs in a process group of its own, which ends with it.

A program reads the task as JSON from standard input and, unless it is longer than Linux allows,
from `SEAMLESSFLOW_TASK`. The session is in `SEAMLESSFLOW_SESSION`, and in `OPENAI_BASE_URL`,
`OPENAI_API_KEY` and `OPENAI_MODEL`. `ANTHROPIC` and `GEMINI` have the same three. Their base URLs
have no `/v1`, and Google's client reads `GOOGLE_GEMINI_BASE_URL`. A session may begin in the middle
of a recorded one. Then `SEAMLESSFLOW_MESSAGES_FILE` names a file with the messages so far, a JSON
array in OpenAI's chat form. No setting of this process is passed on, above all not the admin key.

Calls of agents go to the gateway itself, whatever proxy the environment names. A company's proxy
does not reach a gateway on this host or its network, and would read the sessions' keys. So its
variables are passed on, and the gateway's host is added to `NO_PROXY`.

The result of a program is the last line of its standard output that has a content. The line may
have more than text, as terminals get it. Examples are colour codes, a byte order mark, and a
progress bar's earlier states before a carriage return.
"""

import asyncio
import json
import os
import re
import signal
from asyncio.subprocess import Process
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import BinaryIO
from urllib.parse import urlsplit

import orjson

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.json_lines import line_content
from seamlessflow.infra.settings import ENV_PREFIX
from seamlessflow.producers.agents.harness.session import AgentSession
from seamlessflow.producers.agents.result import LAST_LINE

TRY_AGAIN = 75
"""Exit status EX_TEMPFAIL of sysexits.h."""
ENDING_GRACE_S = 2.0
_LONGEST_VARIABLE_BYTES = 131_000
"""Linux refuses to start a program with a longer variable (MAX_ARG_STRLEN, 128 KiB)."""
_ERROR_TAIL_BYTES = 2_000
LONGEST_LINE_BYTES = 16 * 1024**2
_READ_BYTES = (64 * 1024, 1024**2, 2 * LONGEST_LINE_BYTES)
"""Bytes from the end that are read, each if those before had no whole line."""
_TERMINAL_CODES = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI: colours, moves of the cursor
    rb"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    rb"|[ -/]*[0-~])"  # others, such as the choice of a character set
)
_NO_PROXY = ("no_proxy", "NO_PROXY")
"""Names of one variable; some libraries read one, some the other."""


class CommandFailed(SeamlessFlowError):
    """A program ended with an exit status other than 0, or by a signal (minus its number)."""

    def __init__(self, exit_status: int, error_tail: str) -> None:
        self.exit_status = exit_status
        self.error_tail = error_tail
        super().__init__(f"exit status {exit_status}: {error_tail}".rstrip(": "))


@dataclass(frozen=True)
class CommandResult:
    """Exit status of a program, the result in its output, and the end of its errors."""

    exit_status: int
    result: object
    error_tail: str


class Command:
    """Command line that is run once for each task."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._arguments = tuple(arguments)
        self._environment = {
            name: value for name, value in environment.items() if not name.startswith(ENV_PREFIX)
        }

    async def run(self, payload: bytes, session: AgentSession) -> CommandResult:
        """Run the program as the session's agent to its end. If cancelled, end its group first."""
        with _messages_file(session) as beginning:
            exemption = exempted(self._environment, session.base_url)
            variables = {**exemption, **_variables(payload, session), **beginning}
            return await self.run_on(payload, variables)

    async def run_on(self, payload: bytes, variables: Mapping[str, str]) -> CommandResult:
        """Run the program on this input to its end. If cancelled, end its process group first."""
        # Files, not pipes: a pipe stays open as long as a background process of the program.
        with TemporaryFile() as task, TemporaryFile() as output, TemporaryFile() as errors:
            task.write(payload + b"\n")
            task.seek(0)
            process = await asyncio.create_subprocess_exec(
                *self._arguments,
                stdin=task,
                stdout=output,
                stderr=errors,
                env={**self._environment, **variables},
                start_new_session=True,
            )
            try:
                exit_status = await process.wait()
            finally:
                await _end_group(process)
            return CommandResult(exit_status, result_in(output), _tail(errors, _ERROR_TAIL_BYTES))


def exempted(environment: Mapping[str, str], url: str) -> Mapping[str, str]:
    """Return the variables that exempt the URL's host from the proxies of the environment.

    Hosts that are exempted already stay so. Ports are left out: not all libraries know them there.
    """
    host = urlsplit(url).hostname or ""
    present = {name: environment[name] for name in _NO_PROXY if name in environment}
    changed = {}
    for name in _NO_PROXY:
        hosts = present.get(name, next(iter(present.values()), ""))
        listed = [entry.strip() for entry in hosts.split(",") if entry.strip()]
        if not {host, "*"} & set(listed) and host:
            listed.append(host)
        changed[name] = ",".join(listed)
    return changed


def result_in(output: BinaryIO) -> object:
    """Return the result that a program printed: a mapping or a number.

    An output without one gives a mapping with `LAST_LINE` alone, for the reason and the judge.
    `NaN` and `Infinity` are read, so that they are refused as rewards.
    """
    line = _last_line(output)
    if len(line) > LONGEST_LINE_BYTES:
        return {LAST_LINE: f"a line of more than {LONGEST_LINE_BYTES} bytes"}
    text = line.decode(errors="replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict | int | float) else {LAST_LINE: text}


def _last_line(output: BinaryIO) -> bytes:
    """Return the content of the last line that has one; empty if there is none.

    A line longer than allowed gives a part that is also longer.
    """
    length = output.seek(0, os.SEEK_END)
    tail = b""
    for size in _READ_BYTES:
        output.seek(max(0, length - size))
        tail = output.read()
        # The first line of a part of the output may be cut.
        lines = (tail if size >= length else tail.partition(b"\n")[2]).split(b"\n")
        if content := next(filter(None, map(_content, reversed(lines))), b""):
            return content
        if size >= length:
            return b""
    return tail


def _content(line: bytes) -> bytes:
    """Return the text of a line that a terminal would show in the end."""
    states = _TERMINAL_CODES.sub(b"", line).split(b"\r")
    return next(filter(None, map(line_content, reversed(states))), b"")


def _variables(payload: bytes, session: AgentSession) -> Mapping[str, str]:
    short = len(payload) < _LONGEST_VARIABLE_BYTES
    return {
        "OPENAI_BASE_URL": session.base_url,
        "OPENAI_API_KEY": session.api_key,
        "OPENAI_MODEL": session.model,
        "ANTHROPIC_BASE_URL": session.base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": session.api_key,
        "ANTHROPIC_MODEL": session.model,
        "GOOGLE_GEMINI_BASE_URL": session.base_url.removesuffix("/v1"),
        "GEMINI_API_KEY": session.api_key,
        "GEMINI_MODEL": session.model,
        f"{ENV_PREFIX}SESSION": session.session_id,
        **({f"{ENV_PREFIX}TASK": payload.decode()} if short else {}),
        **({f"{ENV_PREFIX}TURN_LIMIT": str(session.turn_limit)} if session.turn_limit else {}),
    }


@contextmanager
def _messages_file(session: AgentSession) -> Iterator[Mapping[str, str]]:
    """Write the messages with which the program begins, if any; yield the variable for them."""
    if not session.messages:
        yield {}
        return
    with NamedTemporaryFile(prefix="messages-", suffix=".json") as file:
        file.write(orjson.dumps(session.messages))
        file.flush()
        yield {f"{ENV_PREFIX}MESSAGES_FILE": file.name}


def _tail(stream: BinaryIO, size: int) -> str:
    length = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, length - size))
    return stream.read().decode(errors="replace").strip()


async def _end_group(process: Process) -> None:
    """End the program and the processes that it started, with SIGTERM, then SIGKILL."""
    _signal_group(process.pid, signal.SIGTERM)
    if process.returncode is None:
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_GRACE_S):
                await process.wait()
    _signal_group(process.pid, signal.SIGKILL)
    if process.returncode is None:
        await process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
