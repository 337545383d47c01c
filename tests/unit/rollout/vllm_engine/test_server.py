"""A server that another process starts is waited for, and one that does not start says why."""

import logging
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.network.addresses import HOST, free_port
from seamlessflow.producers.rollout.vllm_engine.server import (
    VllmNotStarted,
    await_running,
    last_fault,
)
from tests.waiting import until

GUARD = "process_guard: the program ended with status 1\n"
HEADS = (
    "    s.__pydantic_validator__.validate_python(ArgsKwargs(args, kwargs), self_instance=s)\n"
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig\n"
    "  Value error, Total number of attention heads (2) must be divisible by 3. [type=x]\n"
    "    For further information visit https://errors.pydantic.dev/2.14/v/value_error\n"
)
IN_ANOTHER_PROCESS = (
    "(EngineCore pid=71) ERROR 11-25 23:49:35 [core.py:1000] Traceback (most recent call last):\n"
    "(EngineCore pid=71) ERROR 11-25 23:49:35 [core.py:1001] ValueError: No available memory.\n"
    "(APIServer pid=70) RuntimeError: Engine core initialization failed. See root cause above.\n"
)


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


def test_a_server_may_start_after_its_worker(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    with caplog.at_level(logging.INFO), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(await_running, f"http://{HOST}:{port}", 60)
        until(lambda: "waiting for the server" in caplog.text)
        with HTTPServer((HOST, port), Healthy) as server:
            server.timeout = 0.1
            while not waiting.done():
                server.handle_request()
    waiting.result()


def test_a_server_that_does_not_answer_is_named() -> None:
    url = f"http://{HOST}:{free_port()}"
    with pytest.raises(VllmNotStarted, match=rf"{url} \(rollout\.vllm\.url\): no answer within 0"):
        await_running(url, 0)


@pytest.mark.parametrize(
    ("log", "fault"),
    [
        (HEADS, "Value error, Total number of attention heads (2) must be divisible by 3."),
        (IN_ANOTHER_PROCESS, "ValueError: No available memory."),
        ("api_server.py: error: unrecognized arguments: --x\n", "unrecognized arguments: --x"),
        ("python: Error while finding module (No module named 'vllm')\n", "No module named 'vllm'"),
        ("INFO 11-25 Errors: none\n", ""),
    ],
)
def test_the_fault_is_found_before_the_lines_that_follow_it(log: str, fault: str) -> None:
    assert fault in last_fault(log + GUARD)
    assert bool(fault) == bool(last_fault(log + GUARD))


def test_a_server_that_did_not_start_says_why_in_its_first_and_its_last_line() -> None:
    error = VllmNotStarted("it ended with status 1", Path("vllm-w0.log"), HEADS + GUARD)
    first, *_, last = str(error).splitlines()
    assert "it ended with status 1: Value error, Total number" in first
    assert first in last


def test_a_command_line_that_vllm_refuses_is_not_tried_again() -> None:
    def status(ended: int) -> ExitStatus:
        return VllmNotStarted("", Path("vllm-w0.log"), "", ended).process_status(ready=True)

    assert (status(2), status(1)) == (ExitStatus.LASTING, ExitStatus.PASSING)
