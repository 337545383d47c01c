"""Boards and alerts against a real Prometheus that scrapes the demo: their queries return data."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from seamlessflow.infra.monitoring.alerts import ALERTS
from seamlessflow.infra.monitoring.panels import BOARDS, Series
from seamlessflow.infra.network.addresses import free_port
from tests.e2e.demo_run import seamlessflow

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.nightly,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not here"),
]

Scraped = tuple[httpx.Client, float, float]
"""A Prometheus, and the seconds at which the run began and ended that it scraped."""
STEPS = 12
READY_S = 30.0
CURVES = {
    f"{panel.title}: {curve.legend}": curve
    for board in BOARDS
    for panel in board.panels
    for curve in panel.curves
}
NEVER_IN_A_GOOD_RUN = {"Stalls: {{waited_for}}"}


@contextmanager
def prometheus(out: Path, directory: Path) -> Iterator[httpx.Client]:
    """Start a Prometheus that scrapes the processes of a run every second."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(directory / "boards" / "alerts.yaml")],
        "scrape_configs": [
            {
                "job_name": "seamlessflow",
                "file_sd_configs": [
                    {"files": [str(out / "metrics" / "*.json")], "refresh_interval": "1s"}
                ],
            }
        ],
    }
    (directory / "prometheus.yaml").write_text(json.dumps(config), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={directory / 'prometheus.yaml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            with httpx.Client(base_url=f"http://{address}", timeout=60.0) as client:
                _wait_until_ready(client)
                yield client
        finally:
            process.terminate()
            process.wait(READY_S)


def _wait_until_ready(client: httpx.Client) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            if client.get("/-/ready").is_success:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, "Prometheus did not start"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def scraped(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[httpx.Client, float, float]]:
    """A Prometheus behind a whole demo."""
    directory = tmp_path_factory.mktemp("boards")
    assert seamlessflow("boards", str(directory / "boards")).returncode == 0
    with prometheus(directory / "out", directory) as client:
        began_s = time.time()
        done = seamlessflow("demo", "--out", str(directory / "out"), "--steps", str(STEPS))
        assert done.returncode == 0, done.stdout + done.stderr
        yield client, began_s, time.time()


def ask(client: httpx.Client, path: str, **parameters: object) -> Any:
    answer = client.get(path, params={name: str(value) for name, value in parameters.items()})
    assert answer.is_success, answer.text
    return answer.json()["data"]


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_each_curve_has_points_of_the_run(
    scraped: Scraped, curve: Series, request: pytest.FixtureRequest
) -> None:
    client, began_s, ended_s = scraped
    query = curve.expression.replace("$__rate_interval", "10s")
    data = ask(client, "/api/v1/query_range", query=query, start=began_s, end=ended_s, step=1)
    points = [value for line in data["result"] for _, value in line["values"]]
    if request.node.callspec.id in NEVER_IN_A_GOOD_RUN:
        assert points == []
    else:
        assert any(value != "NaN" for value in points)


def test_prometheus_evaluates_each_alert_and_none_but_of_ended_processes_fires(
    scraped: Scraped,
) -> None:
    client, began_s, ended_s = scraped
    (group,) = ask(client, "/api/v1/rules")["groups"]
    assert [(rule["name"], rule["health"]) for rule in group["rules"]] == [
        (f"SeamlessFlow{alert.name}", "ok") for alert in ALERTS
    ]
    query = 'ALERTS{alertstate="firing"}'
    data = ask(client, "/api/v1/query_range", query=query, start=began_s, end=ended_s, step=1)
    fired = {line["metric"]["alertname"] for line in data["result"]}
    assert fired <= {"SeamlessFlowProcessDown"}
