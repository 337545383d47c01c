"""Environments as agents: their episodes, failures and ends, each in a process of its own."""

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from seamlessflow.producers.agents.environments.agent import EnvironmentAgent
from seamlessflow.producers.agents.environments.child import (
    EnvironmentChild,
    EnvironmentGone,
    EnvironmentSpec,
    EnvironmentUnusable,
    EpisodeFailed,
)
from seamlessflow.producers.agents.environments.listing import write_tasks
from tests.integration.agents.environments.playing import LIMIT_S, SESSION, Start, only, results
from tests.waiting import until


def test_an_episode_gets_its_task_and_session_and_returns_rewards(adapter: Start) -> None:
    spec = adapter(
        """
        def __init__(self, factor):
            self.factor = factor

        async def run(self, task, session):
            assert (session.session_id, session.api_key, session.model) == ("s", "key", "default")
            assert session.base_url == "http://127.0.0.1:9/v1"
            return {"reward": self.factor * task["value"], "rewards": {"style": 1}}
        """,
        {"factor": 2},
    )
    assert only(spec, b'{"value":\n 0.25}') == {"reward": 0.5, "rewards": {"style": 1}}


def test_a_plain_function_has_a_thread_of_its_own(adapter: Start) -> None:
    spec = adapter(
        """
        def __init__(self):
            import threading
            self.both = threading.Barrier(2, timeout=30)

        def run(self, task, session):
            return self.both.wait() >= 0
        """
    )
    assert asyncio.run(results(spec, b"{}", b"{}")) == [True, True]


def test_what_a_package_prints_is_no_result(adapter: Start, tmp_path: Path) -> None:
    spec = adapter(
        """
        def run(self, task, session):
            print('{"ended": 1, "result": 9}')
            subprocess.run([sys.executable, "-c", "print('of a program')"])
            return 0.5
        """
    )
    assert only(spec) == 0.5
    assert "of a program" in (tmp_path / "environment.log").read_text()


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        ("raise KeyError('board')", "KeyError: 'board'"),
        ("sys.exit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("return object()", "TypeError"),
        ("return {'reward': float('nan'), 'board': {1, 2}}", "TypeError"),
    ],
)
def test_an_episode_that_raises_is_a_failure_of_its_environment(
    adapter: Start, raised: str, words: str
) -> None:
    spec = adapter(
        f"""
        async def run(self, task, session):
            if task["fails"]:
                {raised}
            return 1.0
        """
    )
    tasks = (b'{"fails": true}', b'{"fails": false}')
    failed, returned = asyncio.run(results(spec, *tasks))
    assert returned == 1.0
    assert isinstance(failed, EpisodeFailed)
    assert words in str(failed)
    assert not failed.infrastructure
    assert not failed.refused


def test_a_refused_call_may_be_the_policys_doing(adapter: Start) -> None:
    spec = adapter(
        """
        async def run(self, task, session):
            class Refused(Exception):
                status_code = 400
            try:
                raise Refused("the prompt is too long")
            except Refused as refused:
                raise RuntimeError("the turn failed") from refused
        """
    )
    failed = only(spec)
    assert isinstance(failed, EpisodeFailed)
    assert failed.refused


def test_a_gateway_that_cannot_be_reached_is_the_infrastructures_doing(adapter: Start) -> None:
    spec = adapter(
        """
        async def run(self, task, session):
            return await session.ask([{"role": "user", "content": "go"}])
        """
    )
    failed = only(spec)
    assert isinstance(failed, EpisodeFailed)
    assert failed.infrastructure


def test_a_process_that_ends_takes_its_episodes_along_and_another_goes_on(adapter: Start) -> None:
    spec = adapter(
        """
        async def run(self, task, session):
            if task["ends"]:
                os._exit(9)
            await asyncio.sleep(task["seconds"])
            return os.getpid()
        """
    )

    async def main() -> tuple[list[object], object]:
        agent = EnvironmentAgent(spec, 1, 64, LIMIT_S)
        await agent.begin()
        try:
            tasks = (b'{"ends": false, "seconds": 60}', b'{"ends": true}')
            runs = [agent.run(task, SESSION) for task in tasks]
            ended = await asyncio.gather(*runs, return_exceptions=True)
            return list(ended), await agent.run(b'{"ends": false, "seconds": 0}', SESSION)
        finally:
            await agent.close()

    ended, later = asyncio.run(main())
    assert [type(error) for error in ended] == [EnvironmentGone] * 2
    assert "status 9" in str(ended[0])
    assert isinstance(later, int)


def test_a_process_that_ends_is_seen_although_a_fork_holds_its_connection(adapter: Start) -> None:
    spec = adapter(
        """
        async def run(self, task, session):
            if os.fork():
                os._exit(7)
            time.sleep(600)
        """
    )
    gone = only(spec)
    assert isinstance(gone, EnvironmentGone)
    assert "status 7" in str(gone)


def test_a_task_of_5_mb_reaches_its_episode_whole(adapter: Start) -> None:
    spec = adapter(
        """
        def run(self, task, session):
            return len(task["text"].encode())
        """
    )
    assert only(spec, orjson.dumps({"id": "new\nline", "text": "é" * 2_500_000})) == 5_000_000


def test_an_episode_that_is_stopped_ends_in_its_process(adapter: Start, tmp_path: Path) -> None:
    spec = adapter(
        """
        async def run(self, task, session):
            if task["waits"]:
                self.waiting = True
                try:
                    await asyncio.sleep(60)
                finally:
                    self.waiting = False
            return getattr(self, "waiting", None)
        """
    )

    async def main() -> tuple[object, object]:
        agent = EnvironmentAgent(spec, 1, 64, LIMIT_S)
        await agent.begin()
        try:
            waits = asyncio.create_task(agent.run(b'{"waits": true}', SESSION))
            while await agent.run(b'{"waits": false}', SESSION) is None:
                continue
            before = await agent.run(b'{"waits": false}', SESSION)
            waits.cancel()
            await asyncio.wait({waits})
            return before, await agent.run(b'{"waits": false}', SESSION)
        finally:
            await agent.close()

    assert asyncio.run(main()) == (True, False)


@pytest.mark.parametrize("apart", [False, True])
def test_programs_that_a_process_started_end_with_it(adapter: Start, apart: bool) -> None:
    spec = adapter(
        f"""
        async def run(self, task, session):
            sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
            return subprocess.Popen(sleeping, start_new_session={apart}).pid
        """
    )
    left = only(spec)
    assert isinstance(left, int)
    until(lambda: _has_ended(left), "the program has ended")


def test_a_process_is_replaced_behind_so_many_episodes_and_takes_what_they_left(
    adapter: Start,
) -> None:
    spec = adapter(
        """
        async def run(self, task, session):
            left = subprocess.Popen(["sleep", "600"], start_new_session=True).pid
            return [os.getpid(), left]
        """
    )

    async def main() -> list[Any]:
        agent = EnvironmentAgent(spec, 1, 64, LIMIT_S, episodes=3)
        await agent.begin()
        try:
            runs = [agent.run(b"{}", SESSION) for _ in range(8)]
            return await asyncio.wait_for(asyncio.gather(*runs), LIMIT_S)
        finally:
            await agent.close()

    ended = asyncio.run(main())
    processes = Counter(process for process, _ in ended)
    assert sorted(processes.values()) == [2, 3, 3]
    until(lambda: all(_has_ended(left) for _, left in ended), "all programs have ended")


def test_temporary_files_end_with_the_process_that_left_them(adapter: Start) -> None:
    spec = adapter(
        """
        async def run(self, task, session):
            import tempfile
            return tempfile.mkdtemp()
        """
    )
    left = only(spec)
    assert isinstance(left, str)
    assert not Path(left).parent.exists()
    assert Path(left).parent != Path(tempfile.gettempdir())


def _has_ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_package_that_runs_one_episode_at_a_time_gets_more_processes(adapter: Start) -> None:
    spec = adapter(
        """
        concurrent = 1

        def __init__(self):
            self.running = 0

        async def run(self, task, session):
            self.running += 1
            most = self.running
            await asyncio.sleep(0.2)
            self.running -= 1
            return [most, os.getpid()]
        """
    )
    ended = asyncio.run(results(spec, *[b"{}"] * 6, processes=2))
    assert all(isinstance(pair, list) and pair[0] == 1 for pair in ended)
    assert len({pair[1] for pair in ended if isinstance(pair, list)}) == 2


def test_no_more_episodes_are_live_than_the_limit(adapter: Start) -> None:
    spec = adapter(
        """
        def __init__(self):
            self.live = self.most = 0

        async def run(self, task, session):
            self.live += 1
            self.most = max(self.most, self.live)
            await asyncio.sleep(0.1)
            self.live -= 1
            return self.most
        """
    )
    assert max(map(float, asyncio.run(results(spec, *[b"{}"] * 9, live=3)))) == 3  # type: ignore[arg-type]


def test_an_environment_gets_no_setting_of_this_project(adapter: Start) -> None:
    spec = adapter(
        """
        def run(self, task, session):
            return float(any(name.startswith("SEAMLESSFLOW_") for name in os.environ))
        """,
        SEAMLESSFLOW_AGENTS__ADMIN_KEY="hidden",
    )
    assert only(spec) == 0.0


def test_an_episode_has_the_sandbox_without_packages_of_this_project(adapter: Start) -> None:
    spec = adapter(
        """
        def run(self, task, session):
            with session.sandbox(time_s=9) as sandbox:
                ended = sandbox.run(["cat", "task"], {"task": task["text"]})
                return [ended.stdout.decode(), sandbox.limits.time_s, sandbox.directory.exists()]
        """
    )
    bare = replace(spec, python=Path(sys.base_prefix) / "bin" / "python3")
    tasks = [b'{"text": "first"}', b'{"text": "second"}']
    assert asyncio.run(results(bare, *tasks)) == [["first", 9, True], ["second", 9, True]]


def test_tasks_are_written_whole_or_not_at_all(adapter: Start, tmp_path: Path) -> None:
    spec = adapter(
        """
        def __init__(self, count):
            self.count = count

        def tasks(self):
            for place in range(self.count):
                yield {"id": f"t{place}\\n😀", "metadata": {"level": "1"}}
            if self.count == 2:
                raise ValueError("the third is broken")
        """,
        {"count": 3},
    )
    file = tmp_path / "tasks" / "mine.jsonl"
    assert asyncio.run(write_tasks(spec, file, print)) == 3
    assert len(file.read_text().splitlines()) == 3
    file.unlink()
    broken = EnvironmentSpec(
        "mine", spec.python, spec.adapter, {"count": 2}, spec.environment, spec.log_file
    )
    with pytest.raises(EnvironmentUnusable, match="the third is broken"):
        asyncio.run(write_tasks(broken, file, print))
    empty = EnvironmentSpec(
        "mine", spec.python, spec.adapter, {"count": 0}, spec.environment, spec.log_file
    )
    with pytest.raises(EnvironmentUnusable, match="mine lists no tasks"):
        asyncio.run(write_tasks(empty, file, print))
    assert list(file.parent.iterdir()) == []


def test_a_list_of_tasks_reaches_a_reader_that_is_behind(adapter: Start, tmp_path: Path) -> None:
    spec = adapter(
        """
        def __init__(self, whole):
            self.whole = whole

        def tasks(self):
            for place in range(500):
                yield {"id": f"t{place}"}
            open(self.whole, "x").close()
        """,
        {"whole": str(tmp_path / "whole")},
    )

    async def listed() -> list[Mapping[str, Any] | None]:
        child = await EnvironmentChild.open(spec, tasks=True)
        until((tmp_path / "whole").exists)  # nothing is read while this holds up the event loop
        tasks = [await child.listed() for _ in range(501)]
        await child.close()
        return tasks

    tasks = asyncio.run(asyncio.wait_for(listed(), LIMIT_S))
    assert tasks == [*({"id": f"t{place}"} for place in range(500)), None]
