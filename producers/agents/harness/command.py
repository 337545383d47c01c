"""Programs as agents: each runs in a process group of its own, which ends with it.

A program reads the task as JSON from standard input and, unless it is longer than Linux allows,
from `SEAMLESSFLOW_TASK`. The session is in `OPENAI_BASE_URL`, `OPENAI_API_KEY`, `OPENAI_MODEL`, the
same of `ANTHROPIC` and `GEMINI` (whose base URLs have no `/v1`; Google's client reads
`GOOGLE_GEMINI_BASE_URL`) and `SEAMLESSFLOW_SESSION`. In a session that
begins in the middle of a recorded one, `SEAMLESSFLOW_MESSAGES_FILE` names a file with the messages
so far, a JSON array in OpenAI's chat form. No setting of this process is passed on, above all not
the admin key. Variables of proxies are, and the gateway's host is added to `NO_PROXY`.
"""

import asyncio
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import BinaryIO

import orjson

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.settings import ENV_PREFIX
from seamlessflow.producers.agents.harness.output import result_in
from seamlessflow.producers.agents.harness.proxies import exempted
from seamlessflow.producers.agents.harness.session import AgentSession

TRY_AGAIN = 75
"""Exit status EX_TEMPFAIL of sysexits.h."""
ENDING_GRACE_S = 2.0
_LONGEST_VARIABLE_BYTES = 131_000
"""Linux refuses to start a program with a longer variable (MAX_ARG_STRLEN, 128 KiB)."""

_ERROR_TAIL_BYTES = 2_000


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
        """Run the program to its end. If cancelled, end its process group first."""
        # Files, not pipes: a pipe stays open as long as a background process of the program.
        with (
            TemporaryFile() as task,
            TemporaryFile() as output,
            TemporaryFile() as errors,
            _messages_file(session) as beginning,
        ):
            task.write(payload + b"\n")
            task.seek(0)
            process = await asyncio.create_subprocess_exec(
                *self._arguments,
                stdin=task,
                stdout=output,
                stderr=errors,
                env={
                    **self._environment,
                    **exempted(self._environment, session.base_url),
                    **_variables(payload, session),
                    **beginning,
                },
                start_new_session=True,
            )
            try:
                exit_status = await process.wait()
            finally:
                await _end_group(process)
            return CommandResult(exit_status, result_in(output), _tail(errors, _ERROR_TAIL_BYTES))


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
