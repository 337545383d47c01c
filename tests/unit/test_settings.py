"""Settings explain themselves, name what is wrong, and are light to read."""

import importlib
import subprocess
import sys

import pytest
from pydantic import BaseModel

from infra.settings import KafkaSettings, ProcessSettings, load
from infra.settings_help import describe

PROCESSES = {
    "consumers.trajectories": "ManagerSettings",
    "producers.agents": "AgentsSettings",
    "producers.gateway": "Settings",
    "producers.rollout": "RolloutSettings",
    "scheduler": "SchedulerSettings",
    "trainer": "TrainerSettings",
}
HEAVY = ("torch", "transformers", "renderers", "matplotlib")


def settings_of(process: str) -> type[BaseModel]:
    found: type[BaseModel] = getattr(
        importlib.import_module(f"{process}.settings"), PROCESSES[process]
    )
    return found


@pytest.mark.parametrize("process", PROCESSES)
def test_every_setting_is_explained(process: str) -> None:
    lines = describe(settings_of(process), "SEAMLESSFLOW_").splitlines()

    assert lines
    assert all(line.strip() for line in lines), "a setting without a description"


@pytest.mark.parametrize("process", PROCESSES)
def test_help_loads_nothing_heavy(process: str) -> None:
    program = (
        "import runpy, sys\n"
        f"sys.argv = ['{process}', '--help']\n"
        "try:\n"
        f"    runpy.run_module('{process}', run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0, end.code\n"
        f"heavy = sorted(set({HEAVY!r}) & set(sys.modules))\n"
        "assert not heavy, heavy\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS" in done.stdout


def test_a_wrong_setting_is_reported_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_TELEMETRY__SAMPLE_RATIO", "7")

    with pytest.raises(SystemExit, match="SEAMLESSFLOW_TELEMETRY__SAMPLE_RATIO"):
        load(ProcessSettings)


def test_credentials_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = KafkaSettings(options={"sasl.password": "hidden"})

    assert "hidden" not in repr(settings)
