"""Programs as agents: each runs in its own process group, which ends with it.

A program reads the task as JSON from standard input and, unless it is longer than Linux allows,
from `SEAMLESSFLOW_TASK`. The session is in `SEAMLESSFLOW_SESSION`, and in `OPENAI_BASE_URL`,
`OPENAI_API_KEY` and `OPENAI_MODEL`. `ANTHROPIC` and `GEMINI` have the same three. Their base URLs
have no `/v1`, and Google's client reads `GOOGLE_GEMINI_BASE_URL`. A session may begin in the middle
of a recorded one. `SEAMLESSFLOW_MESSAGES_FILE` then names a file with the messages so far, a JSON
array in OpenAI's chat form. This process's settings are not passed on, above all not the admin key.

Agents call the gateway directly, whatever proxy the environment names. A company's proxy does not
reach a gateway on this host or its network, and would read the sessions' keys. So the proxy's
variables are passed on, and the gateway's host is added to `NO_PROXY`.

A program's result is the last line with content on its standard output. Beside text, the line may
have what terminals get: for example colour codes, a byte order mark, or a progress bar's earlier
states before a carriage return.
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
"""Bytes that are read from the end: the next size only if the one before held no whole line."""
_TERMINAL_CODES = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves
    rb"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    rb"|[ -/]*[0-~])"  # others, such as the choice of a character set
)
_NO_PROXY = ("no_proxy", "NO_PROXY")
"""Two names for one variable; some libraries read the first, some the second."""


class CommandFailed(SeamlessFlowError):
    """A program ended with an exit status other than 0, or by a signal (minus its number)."""

    def __init__(self, exit_status: int, error_tail: str) -> None:
        self.exit_status = exit_status
        self.error_tail = error_tail
        super().__init__(f"exit status {exit_status}: {error_tail}".rstrip(": "))


@dataclass(frozen=True)
class CommandResult:
    """A program's exit status, the result in its output, and the end of its errors."""

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
        # Files, not pipes: a program's background process would keep a pipe open.
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
    """Return the variables that exempt the URL's host from the environment's proxies.

    Hosts that are already exempted stay so. Ports are left out: not all libraries read them there.
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

    Output without a result gives a mapping with only `LAST_LINE`, for the reason and the judge.
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
    """Return the content of the last line that has content; empty if there is none.

    If the line is longer than allowed, return a part that is also longer.
    """
    length = output.seek(0, os.SEEK_END)
    tail = b""
    for size in _READ_BYTES:
        output.seek(max(0, length - size))
        tail = output.read()
        # If this is only a part of the output, its first line may be cut.
        lines = (tail if size >= length else tail.partition(b"\n")[2]).split(b"\n")
        if content := next(filter(None, map(_content, reversed(lines))), b""):
            return content
        if size >= length:
            return b""
    return tail


def _content(line: bytes) -> bytes:
    """Return the text that a terminal would show in the end for a line."""
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
    """Write the messages that the program begins with, if any; yield the variable for them."""
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
