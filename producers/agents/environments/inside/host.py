"""Host of an environment package: a program that runs in the package's own Python.

    python -P host.py SOCKET ADAPTER

It needs only the standard library, the package and `openai`, since this project's requirements may
conflict with the package's. `SOCKET` is the file descriptor of a socket to the process that started
the host. `ADAPTER` is a file with a class `Environment`:

    class Environment:
        concurrent = 0                      # episodes at once in one process; 0: no limit
        roles = ()                          # names of roles; then `run` gets a session for each
        def __init__(self, settings): ...   # settings of the configuration, by keyword
        def tasks(self): ...                # yields mappings with `id`, and `metadata` of texts;
                                            # optional `drawn_from`: what makes it the same task
        async def warm_up(self): ...        # optional: what the first episode would wait for
        async def run(self, task, session): # returns what an agent returns
        async def close(self): ...          # optional

`run` may be a plain function; it then has its own thread. Whatever it raises is a failure of the
environment, never a reward. Each line, in or out, is a JSON object:

    in:  {"settings": {...}, "tasks": true}           list the tasks and end
         {"settings": {...}}                          warm up, then run episodes
         {"run": 7, "task": {...}, "session": {...}}
         {"run": 7, "task": {...}, "sessions": {"a role": {...}}}
         {"stop": 7}
    out: {"ready": {"concurrent": 0, "roles": []}}
         {"task": {...}}, at last {"listed": 12}
         {"ended": 7, "result": {...}}
         {"failed": 7, "error": "the traceback", "infrastructure": false, "refused": false}
         {"unusable": "the traceback"}                at the start; then it ends
"""

import asyncio
import contextlib
import importlib
import importlib.util
import inspect
import json
import os
import socket
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

LONGEST_LINE_BYTES = 64 * 1024**2
OTHER_SETTINGS = "environment_settings"
"""Member of a task that was listed with other settings than the run's. It has the differences."""
_UNUSABLE = 78
"""Exit status EX_CONFIG of sysexits.h."""


class Session(SimpleNamespace):
    """Open session, as an adapter sees it: `base_url`, `api_key`, `model`, `session_id` and more.

    `docs/agents/environments.md` has all members. `ask` is for packages without a client.
    """

    def __repr__(self) -> str:
        return f"Session({self.session_id})"

    @property
    def client(self) -> Any:
        """An `openai` client with the session's URL and key."""
        return client_of(self)

    async def ask(self, messages: list[Mapping[str, Any]], **options: Any) -> Any:
        """Return the policy's answer, as a message of `openai`."""
        completion = await self.client.chat.completions.create(
            model=self.model, messages=messages, **options
        )
        return completion.choices[0].message

    def sandbox(self, prefixes: Sequence[str] = (), **limits: Any) -> Any:
        """Return a `Sandbox`: a directory for commands, apart from the rest of the machine.

        `prefixes`: places that a command may read, with programs in their `bin`. `limits`: for each
        command, as `SandboxLimits` names them.
        """
        ours = our_sandbox("sandbox")
        return ours.Sandbox(ours.SandboxLimits(**limits), prefixes=prefixes)

    def workplace(self, folders: Sequence[str], prefixes: Sequence[str] = (), **limits: Any) -> Any:
        """Return a `Workplace`: a sandbox whose processes live on from command to command.

        `folders`: paths of its directories. `limits`: for all commands together.
        """
        made = our_sandbox("sandbox").SandboxLimits(**limits)
        return our_sandbox("workplace").Workplace(folders, made, prefixes)


def our_sandbox(module: str) -> Any:
    """Return a module of this project's sandbox, which needs only the standard library."""
    return importlib.import_module(f"seamlessflow.producers.sandbox.{module}")


def name_our_package() -> None:
    """Make this project's modules importable by name where the project is not installed."""
    if "seamlessflow" not in sys.modules and importlib.util.find_spec("seamlessflow") is None:
        package = sys.modules["seamlessflow"] = ModuleType("seamlessflow")
        package.__path__ = [str(Path(__file__).parents[4])]


def client_of(session: Session) -> Any:
    """Return an `openai` client for the session; all sessions share their connections.

    It does not repeat calls: the gateway waits for the engine as long as it takes.
    """
    import openai

    return openai.AsyncOpenAI(
        base_url=session.base_url,
        api_key=session.api_key,
        http_client=_connections(),
        max_retries=0,
        timeout=None,
    )


@cache
def _connections() -> Any:
    """Return the HTTP client that all sessions share: one each would take 20 ms and a megabyte."""
    import openai

    # Without limits, each episode keeps its connection: by default those beyond 100 are made anew.
    limits = type(openai.DEFAULT_CONNECTION_LIMITS)()
    return openai.DefaultAsyncHttpxClient(limits=limits, timeout=None)


class Host:
    """Server of one connection: it runs the episodes asked for until the connection closes."""

    def __init__(self, adapter: Path, lines: asyncio.StreamReader, out: asyncio.StreamWriter):
        self._adapter = adapter
        self._lines = lines
        self._out = out
        self._episodes: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> int:
        """Serve until the connection closes; return the exit status."""
        first = await self._read()
        if first is None:
            return 0
        environments = Environments(self._adapter, first["settings"])
        try:
            if first.get("tasks"):
                return await self._list(environments.made({}))
            environment = await environments.warm({})
        except BaseException as error:
            await self._write({"unusable": _in_words(error)})
            return _UNUSABLE
        ready = {
            "concurrent": getattr(environment, "concurrent", 0),
            "roles": list(getattr(environment, "roles", ())),
        }
        await self._write({"ready": ready})
        async for asked in self._asked():
            if "stop" in asked:
                if episode := self._episodes.get(asked["stop"]):
                    episode.cancel()
                continue
            number = asked["run"]
            running = self._run(environments, number, asked["task"], _sessions(asked))
            self._episodes[number] = asyncio.create_task(running)
        for episode in self._episodes.values():
            episode.cancel()
        await asyncio.gather(*self._episodes.values(), return_exceptions=True)
        await environments.close()
        return 0

    async def _list(self, environment: Any) -> int:
        count = 0
        for task in environment.tasks():
            await self._write({"task": dict(task)})
            count += 1
        await self._write({"listed": count})
        return 0

    async def _run(
        self,
        environments: "Environments",
        number: int,
        task: Mapping[str, Any],
        session: "Sessions",
    ) -> None:
        try:
            environment = await environments.warm(task.get(OTHER_SETTINGS, {}))
            result = await _called(environment.run, task, session)
            answer = {"ended": number, "result": _plain(result)}
            line = _line(answer)
        except BaseException as error:  # `exit`, a test's failure: none of them ends the host
            line = _line({"failed": number, **_described(error)})
        del self._episodes[number]
        self._out.write(line)
        await self._out.drain()

    async def _asked(self) -> AsyncIterator[dict[str, Any]]:
        while (asked := await self._read()) is not None:
            yield asked

    async def _read(self) -> dict[str, Any] | None:
        line = await self._lines.readline()
        return cast(dict[str, Any], json.loads(line)) if line else None

    async def _write(self, message: Mapping[str, Any]) -> None:
        self._out.write(_line(message))
        await self._out.drain()


class Environments:
    """Instances of an adapter's class: one for the run, and one for each set of other settings."""

    def __init__(self, adapter: Path, settings: Mapping[str, Any]) -> None:
        self._adapter = adapter
        self._settings = settings
        self._warm: dict[str, asyncio.Task[Any]] = {}

    def made(self, changes: Mapping[str, Any]) -> Any:
        """Return a new instance with these settings instead of the run's.

        Raises `ValueError` for settings that are unknown or missing.
        """
        settings = {**self._settings, **changes}
        kind = _module(self._adapter).Environment
        try:
            inspect.signature(kind).bind(**settings)
        except TypeError as error:
            raise ValueError(f"{error}; settings are {', '.join(settings) or 'none'}") from error
        return kind(**settings)

    async def warm(self, changes: Mapping[str, Any]) -> Any:
        """Return the warm instance with these changes. Raises what the adapter raises."""
        name = json.dumps(changes, sort_keys=True)
        warming = self._warm.get(name)
        if warming is None or _failed(warming):
            warming = self._warm[name] = asyncio.create_task(self._warmed(changes))
        return await asyncio.shield(warming)

    async def close(self) -> None:
        """Close all instances that got warm."""
        for warming in self._warm.values():
            if warming.done() and not _failed(warming):
                await _optional(warming.result(), "close")
            warming.cancel()

    async def _warmed(self, changes: Mapping[str, Any]) -> Any:
        environment = self.made(changes)
        await _optional(environment, "warm_up")
        return environment


def _failed(work: asyncio.Task[Any]) -> bool:
    return work.done() and (work.cancelled() or work.exception() is not None)


Sessions = Session | dict[str, Session]


def _sessions(asked: Mapping[str, Any]) -> Sessions:
    """Return an episode's session, or each role's session by the role's name."""
    if "sessions" not in asked:
        return Session(**asked["session"])
    return {role: Session(**session) for role, session in asked["sessions"].items()}


async def _called(function: Callable[..., Any], *arguments: object) -> Any:
    """Call an async function here, any other in its own thread."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    value = await asyncio.to_thread(function, *arguments)
    return await value if inspect.isawaitable(value) else value


async def _optional(environment: Any, name: str) -> None:
    if (function := getattr(environment, name, None)) is not None:
        await _called(function)


def _plain(result: Any) -> Any:
    """Return a result with JSON's types: scalars from numpy and torch become numbers."""
    if isinstance(result, Mapping):
        return {str(name): _plain(value) for name, value in result.items()}
    if isinstance(result, bool | str | int) or result is None:
        return result
    if isinstance(result, list | tuple):
        return [_plain(value) for value in result]
    return float(result)


def _described(error: BaseException) -> dict[str, Any]:
    failures = _module(Path(__file__).parents[2] / "failures.py")
    return {
        "error": "".join(traceback.format_exception(error)),
        "infrastructure": failures.is_infrastructure_failure(error),
        "refused": failures.is_refused_call(error),
    }


def _in_words(error: BaseException) -> str:
    """Return the traceback; for pydantic's error, a last line names each wrong setting."""
    words = "".join(traceback.format_exception(error))
    if type(error).__name__ != "ValidationError" or not hasattr(error, "errors"):
        return words
    wrong = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
    return words + "; ".join(wrong)


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


@cache
def _module(path: Path) -> ModuleType:
    """Return a file's module. A package of the same name is another module."""
    name = f"seamlessflow_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def _main(number: int, adapter: Path) -> int:
    connection = socket.socket(fileno=number)
    connection.set_inheritable(False)  # a program that the package starts does not hold it open
    lines, out = await asyncio.open_connection(sock=connection, limit=LONGEST_LINE_BYTES)
    try:
        return await Host(adapter, lines, out).serve()
    finally:
        out.close()
        with contextlib.suppress(ConnectionError):  # the reader is gone
            await out.wait_closed()  # what it has not read yet would be lost with this process


def main() -> None:
    """Serve; what packages print goes to standard error, which is the log."""
    os.dup2(2, 1)
    name_our_package()
    status = asyncio.run(_main(int(sys.argv[1]), Path(sys.argv[2])))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads of episodes that ignore their end do not hold it up


if __name__ == "__main__":
    main()
