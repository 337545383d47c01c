"""A process that cannot start for a reason of the user's says that reason alone."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.network.addresses import HOST
from seamlessflow.schemas.releases import this_release
from tests.paths import ROOT

SECRET = "0123456789abcdef0123456789abcdef"
NOBODY = {"SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": f"{HOST}:1"}


def started(
    process: str,
    settings: Mapping[str, str],
    *arguments: str,
    status: int = ExitStatus.LASTING,
) -> str:
    """Return the output of a process that ended at once."""
    done = subprocess.run(
        [sys.executable, "-m", process, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **NOBODY, **settings},
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_port_in_use_is_named() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        settings = {"SEAMLESSFLOW_GATEWAY__PORT": str(port), "SEAMLESSFLOW_GATEWAY__SECRET": SECRET}
        output = started("seamlessflow.producers.gateway", settings)
    assert output == (
        f"not started: cannot listen on {HOST} port {port} (gateway.host, gateway.port): "
        "Address already in use\n"
    )


@pytest.mark.parametrize(
    ("process", "settings", "reason"),
    [
        ("seamlessflow.scheduler", {"SCHEDULER__POLICY": "nope"}, "no strategy 'nope'"),
        ("seamlessflow.scheduler", {"PACING__TASKS": "/nope.jsonl"}, "/nope.jsonl: No such file"),
        (
            "seamlessflow.scheduler",
            {"KAFKA__OPTIONS": '{"nope": 1}'},
            "SEAMLESSFLOW_KAFKA__OPTIONS: No such con",
        ),
        (
            "seamlessflow.producers.agents",
            {"AGENTS__CALLABLE": "nope:solve", "AGENTS__ADMIN_KEY": SECRET},
            "'nope:solve' cannot be called",
        ),
        (
            "seamlessflow.producers.rollout",
            {"ROLLOUT__ENGINE": "vllm", "ROLLOUT__VLLM__PYTHON": "/nope/python"},
            "SEAMLESSFLOW_ROLLOUT__VLLM__PYTHON: there is no program /nope/python",
        ),
    ],
)
def test_a_setting_that_leads_nowhere_is_told_in_one_line(
    process: str, settings: Mapping[str, str], reason: str
) -> None:
    output = started(process, {f"SEAMLESSFLOW_{name}": value for name, value in settings.items()})
    (line,) = (line for line in output.splitlines() if line.startswith("not started: "))
    assert reason in line


@pytest.mark.parametrize(
    ("renderer", "lines"),
    [
        ('{"name": "nope"}', ["not started: renderer nope: "]),
        (
            '{"family": "qwen3"}',
            [
                "settings are not valid:",
                "  SEAMLESSFLOW_POLICY__RENDERER__FAMILY: ",
            ],
        ),
    ],
)
def test_a_trainer_refuses_a_policy_that_cannot_be_rendered(
    tmp_path: Path, renderer: str, lines: Sequence[str]
) -> None:
    make_tokenizer(tmp_path)
    output = started(
        "seamlessflow.trainer",
        {
            "SEAMLESSFLOW_DATA_DIR": str(tmp_path / "data"),
            "SEAMLESSFLOW_POLICY__MODEL": str(tmp_path),
            "SEAMLESSFLOW_POLICY__RENDERER": renderer,
        },
    )
    for line, begins in zip(output.splitlines(), lines, strict=True):
        assert line.startswith(begins)


def test_a_broker_says_where_it_cannot_keep_its_data() -> None:
    output = started("seamlessflow.infra.broker", {}, "--data", "/proc/nope", status=1)
    assert output == (
        "embedded Kafka broker in /proc/nope: its directory cannot be made: "
        "No such file or directory\n"
    )


def test_the_command_line_tells_its_version() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "seamlessflow", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == f"{this_release().version}\n"
