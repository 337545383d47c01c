"""Agents that are commands: their task, session, reward, failures and end."""

import fcntl
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from seamlessflow.producers.agents.harness.agent import CommandAgent
from seamlessflow.producers.agents.harness.command import Command
from tests.builders.records.forks import forked
from tests.integration.agents.one_episode import a_task, closed, run

Payload = Mapping[str, object]


def python(program: str, environment: Mapping[str, str] | None = None) -> CommandAgent:
    return CommandAgent(Command([sys.executable, "-c", program], environment or {}))


def ends_with_the_answer(task: Payload, result: Payload) -> bool:
    return str(result["last_line"]).endswith(": 42")


def wait_for_lock(path: Path, limit_s: float) -> None:
    """Return when no process holds the lock any more; fails after the limit."""
    deadline = time.monotonic() + limit_s
    with path.open() as held:
        while time.monotonic() < deadline:
            try:
                return fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
    raise AssertionError(f"{path} is still held")


def test_a_command_gets_its_task_and_its_session_and_prints_its_reward() -> None:
    program = """
import json, os, sys
task = json.load(sys.stdin)
assert task == json.loads(os.environ["SEAMLESSFLOW_TASK"]) == {"prompt": "key 7"}
assert os.environ["OPENAI_API_KEY"] == "key of " + os.environ["SEAMLESSFLOW_SESSION"]
assert os.environ["OPENAI_BASE_URL"].endswith("/v1") and os.environ["OPENAI_MODEL"] == "default"
assert os.environ["ANTHROPIC_BASE_URL"] + "/v1" == os.environ["OPENAI_BASE_URL"]
assert os.environ["ANTHROPIC_API_KEY"] == os.environ["OPENAI_API_KEY"]
assert os.environ["GOOGLE_GEMINI_BASE_URL"] == os.environ["ANTHROPIC_BASE_URL"]
assert os.environ["GEMINI_API_KEY"] == os.environ["OPENAI_API_KEY"]
print("working")
print(json.dumps({"reward": 0.25}))
"""
    gateway = run(python(program))
    assert gateway.calls[1].body["value"] == 0.25
    assert closed(gateway) == ("complete", "policy")


def test_a_command_does_not_see_the_settings_of_its_runner() -> None:
    program = "import os; print(int('SEAMLESSFLOW_AGENTS__ADMIN_KEY' not in os.environ))"
    gateway = run(python(program, {"SEAMLESSFLOW_AGENTS__ADMIN_KEY": "hidden"}))
    assert gateway.calls[1].body["value"] == 1.0


def test_a_command_calls_the_gateway_itself_where_a_proxy_is_set() -> None:
    program = """
from urllib.request import getproxies, proxy_bypass
assert getproxies()["http"] == "http://127.0.0.1:9"
print(int(bool(proxy_bypass("gateway")) and not proxy_bypass("elsewhere")))
"""
    gateway = run(python(program, {"HTTP_PROXY": "http://127.0.0.1:9"}))
    assert gateway.calls[1].body["value"] == 1.0


def test_a_command_that_fails_closes_its_session_with_the_end_of_its_complaint() -> None:
    gateway = run(python("import sys; print('reward 1'); sys.exit('no such file')"))
    assert closed(gateway) == ("aborted", "environment")
    assert str(gateway.calls[-1].body["reason"]).endswith("no such file")


def test_a_command_may_blame_the_infrastructure() -> None:
    assert closed(run(python("raise SystemExit(75)"))) == ("aborted", "infrastructure")


def test_a_command_without_a_reward_is_unrewarded() -> None:
    gateway = run(python("print('done')"))
    assert closed(gateway) == ("unrewarded", "environment")
    reason = "the agent gave no reward 'reward'; its output ends with 'done'"
    assert gateway.calls[-1].body["reason"] == reason


def test_a_commands_judge_gets_its_last_line() -> None:
    gateway = run(python("print('42')\nprint('the answer: 42')"), judge=ends_with_the_answer)
    assert gateway.calls[1].body["value"] == 1.0


def test_a_reward_of_a_command_that_is_no_number_is_named() -> None:
    gateway = run(python("print('{\"reward\": NaN}')"))
    assert closed(gateway) == ("aborted", "environment")
    assert gateway.calls[-1].body["reason"] == "a reward is a finite number, not nan"


def test_a_command_and_all_it_started_are_ended_at_the_time_limit(tmp_path: Path) -> None:
    program = f"""
import fcntl, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = open({str(tmp_path / "held")!r}, "w")
fcntl.flock(held, fcntl.LOCK_EX)
waiting = "import signal; signal.pause()"
subprocess.run([sys.executable, "-c", waiting], pass_fds=[held.fileno()])
signal.pause()
"""
    gateway = run(python(program), time_limit_s=1.0)
    assert closed(gateway) == ("timeout", "policy")
    wait_for_lock(tmp_path / "held", limit_s=5)


def test_a_command_that_leaves_a_child_behind_does_not_wait_for_it() -> None:
    program = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print('{"reward": 1}')
"""
    assert closed(run(python(program), time_limit_s=20)) == ("complete", "policy")


def test_a_command_finds_the_messages_with_which_it_begins_in_a_file() -> None:
    program = """
import json, os
with open(os.environ["SEAMLESSFLOW_MESSAGES_FILE"]) as file:
    asked, call, result = json.load(file)
assert asked == {"role": "user", "content": "sum up"}, asked
assert call["tool_calls"][0]["id"] == result["tool_call_id"]
print(1)
"""
    gateway = run(python(program), replace(a_task(), fork=forked()))
    assert gateway.calls[1].body["value"] == 1.0
    none = "import os; print(int('SEAMLESSFLOW_MESSAGES_FILE' not in os.environ))"
    assert run(python(none)).calls[1].body["value"] == 1.0
