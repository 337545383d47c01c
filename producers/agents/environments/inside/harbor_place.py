"""A session's sandbox in the form of a Harbor environment, and the tasks that it cannot run.

A task's commands share processes, network and folders until its end. So a terminal lives on from
one command to the next, and the tests see the servers that the agent started.
"""

import asyncio
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.environments.tar_transfer import extract_dir_from_bytes, pack_dir_to_bytes
from harbor.models.task.verifier_mode import task_has_any_separate_verifier
from harbor.trial.errors import AgentTimeoutError

SESSION: ContextVar[Any] = ContextVar("session")
"""The episode's session, for the environment that Harbor makes in it."""
PLACE = f"{__name__}:Place"
_FOLDERS = ("/logs", "/tests", "/solution")
_WORK = "/app"
_MOST = 256 << 20  # bytes that are brought out at once
_SHOWN = 2_000  # characters of what the tests printed
FOREVER_S = 1e6
"""Time limit for what `agents.time_limit_s` limits already."""


class Place(BaseEnvironment):  # type: ignore[misc]
    """The session's workplace. Harbor makes it by its import path."""

    def __init__(
        self,
        *arguments: Any,
        network: bool,
        prefixes: Sequence[str],
        limits: Mapping[str, Any],
        **options: Any,
    ) -> None:
        self._made: Any = None
        super().__init__(*arguments, **options)
        self._work = self.task_env_config.workdir or _WORK
        ours: dict[str, Any] = {"time_s": FOREVER_S, "processes": 256}
        if self.task_env_config.memory_mb:
            ours["memory_bytes"] = self.task_env_config.memory_mb << 20
        self._limits = {**ours, **limits, "network": network and not self._network_disabled}
        self._prefixes = prefixes

    @staticmethod
    def type() -> str:
        """Return this kind's name."""
        return "sandbox"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """Abilities that tasks may ask for."""
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None:
        """Check nothing: `refusals` has checked the task."""

    async def start(self, force_build: bool) -> None:
        """Open the workplace, and put the environment's files in its working folder."""
        folders = dict.fromkeys((self._work, *_FOLDERS))
        make = SESSION.get().workplace
        self._made = await asyncio.to_thread(make, list(folders), self._prefixes, **self._limits)
        if self.environment_dir.is_dir():
            await self.upload_dir(self.environment_dir, self._work)
        await self.exec("mkdir -p /logs/agent /logs/verifier /logs/artifacts", cwd="/")

    async def stop(self, delete: bool) -> None:
        """End the workplace with all its processes."""
        if self._made is not None:
            await asyncio.to_thread(self._made.close)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command, as the only user that the workplace has."""
        ended = await self._run(command, cwd, env, timeout_sec)
        if ended.status is None:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        stdout, stderr = (text.decode(errors="replace") for text in (ended.stdout, ended.stderr))
        return ExecResult(stdout=stdout, stderr=stderr, return_code=ended.status)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Write a file, with its mode."""
        mode = oct(Path(source_path).stat().st_mode & 0o777)[2:]
        folder, target = (
            shlex.quote(str(path)) for path in (Path(target_path).parent, target_path)
        )
        command = f"mkdir -p {folder} && cat > {target} && chmod {mode} {target}"
        await self._checked(command, Path(source_path).read_bytes())

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Write a directory."""
        target = shlex.quote(target_dir)
        packed = await asyncio.to_thread(pack_dir_to_bytes, source_dir)
        command = f"mkdir -p {target} && tar -x --no-same-owner -C {target}"
        await self._checked(command, packed.getvalue())

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Read a file."""
        content = await self._checked(f"cat {shlex.quote(source_path)}")
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        Path(target_path).write_bytes(content)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Read a directory; leave out links that point outside it."""
        packed = await self._checked(f"tar -c -C {shlex.quote(source_dir)} .")
        await asyncio.to_thread(extract_dir_from_bytes, packed, target_dir)

    async def _checked(self, command: str, stdin: bytes = b"") -> bytes:
        """Return what a transfer's command wrote. Raises `RuntimeError` if it failed."""
        ended = await self._run(command, "/", None, None, stdin=stdin, most=_MOST)
        if ended.status or ended.cut:
            reason = "it is too large" if ended.cut else ended.stderr.decode(errors="replace")
            raise RuntimeError(f"{command}: {reason}")
        content: bytes = ended.stdout
        return content

    async def _run(
        self,
        command: str,
        cwd: str | None,
        env: dict[str, str] | None,
        time_s: float | None,
        **options: Any,
    ) -> Any:
        variables = self._merge_env(env) or {}
        place = cwd or self._work
        return await asyncio.to_thread(self._made.run, command, place, variables, time_s, **options)


def refusals(config: Any, paths: Any, network: bool) -> Iterator[str]:
    """Yield each reason why the sandbox cannot run a task, with the setting's name."""
    world = config.environment
    for name in ("Dockerfile", "docker-compose.yaml"):
        if (paths.environment_dir / name).exists():
            yield f"{name} needs a container"
    for name in ("docker_image", "gpus", "tpu", "mcp_servers"):
        if getattr(world, name):
            yield f"environment.{name}"
    if world.os != "linux":
        yield f"environment.os is {world.os.value}"
    if config.steps:
        yield "several steps"
    if task_has_any_separate_verifier(config):
        yield "an environment of the verifier's own"
    for role in ("agent", "verifier"):
        if getattr(config, role).user not in (None, "root", 0):
            yield f"{role}.user"
    modes = {
        section.network_mode.value
        for section in (world, config.agent, config.verifier)
        if "network_mode" in section.model_fields_set and section.network_mode is not None
    }
    if "allowlist" in modes or len(modes) > 1:
        yield f"network_mode {', '.join(sorted(modes))}"
    elif "public" in modes and not network:
        yield "network_mode public without settings.network"
    elif modes == {"no-network"} and world.network_mode != "no-network":
        yield "network_mode no-network of a phase alone"


def kept_errors(agent: Any) -> list[Exception]:
    """Return a list that collects what the agent raises: Harbor keeps only the text."""
    errors: list[Exception] = []
    run = agent.run

    async def keeping(**arguments: Any) -> None:
        try:
            await run(**arguments)
        except AgentTimeoutError:
            raise
        except Exception as error:
            errors.append(error)
            raise

    agent.run = keeping
    return errors


def why_invalid(trial: Any) -> RuntimeError:
    """Return why a trial has no valid reward, with the end of its tests' output."""
    info = trial.result.exception_info
    file = trial.paths.test_stdout_path
    printed = file.read_text(errors="replace")[-_SHOWN:] if file.exists() else ""
    return RuntimeError(f"no valid reward: {info and info.exception_traceback}\n{printed}")
