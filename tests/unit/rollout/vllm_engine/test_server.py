"""A server that another process starts is waited for, and named if it does not come."""

import logging
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from seamlessflow.infra.network.ports import HOST, free_port
from seamlessflow.producers.rollout.vllm_engine.server import VllmNotStarted, await_running
from tests.waiting import until


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
