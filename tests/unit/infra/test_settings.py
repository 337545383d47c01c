"""Settings explain themselves, name what is wrong, and are light to read."""

import importlib
import subprocess
import sys

import pytest
from pydantic import BaseModel

from infra.help import describe
from infra.settings import KafkaSettings, ProcessSettings, load
from infra.variables import SECTIONS
from producers.agents.settings import AgentsSettings
from producers.gateway.settings import GatewaySettings
from seamlessflow.config import RunConfig

PROCESSES = {
    "consumers.trajectories": "ManagerSettings",
    "producers.agents": "AgentsSettings",
    "producers.gateway": "GatewaySettings",
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


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("SEAMLESSFLOW_GATWAY__PORT", "; did you mean SEAMLESSFLOW_GATEWAY__PORT?"),
        ("seamlessflow_gatway__port", "; did you mean SEAMLESSFLOW_GATEWAY__PORT?"),
        ("SEAMLESSFLOW_DATADIR", "; did you mean SEAMLESSFLOW_DATA_DIR?"),
        ("SEAMLESSFLOW_NOSUCH__THING", ""),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_nearest_name(
    monkeypatch: pytest.MonkeyPatch, name: str, told: str
) -> None:
    monkeypatch.setenv(name, "1")

    with pytest.raises(SystemExit) as ended:
        load(ProcessSettings)

    assert str(ended.value) == f"settings are not valid:\n  {name}: no process reads it{told}"


@pytest.mark.parametrize(
    "name", ["TRAINER__SEED", "OUT", "KEY", "VENV", "SESSION", "TEST_SEED", "GATEWAY_SERVICE_HOST"]
)
def test_variables_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"SEAMLESSFLOW_{name}", "1")

    assert load(ProcessSettings) == ProcessSettings()


def test_all_sections_are_known() -> None:
    classes: list[type[BaseModel]] = [RunConfig, *(settings_of(process) for process in PROCESSES)]

    assert sorted({name.upper() for one in classes for name in one.model_fields}) == list(SECTIONS)


@pytest.mark.parametrize("text", ["rollout", "{'a': 1}"])
def test_text_where_json_belongs_is_reported_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__OPTIONS", text)

    with pytest.raises(SystemExit, match="SEAMLESSFLOW_KAFKA__OPTIONS: must be JSON"):
        load(ProcessSettings)


def test_credentials_do_not_show() -> None:
    settings = KafkaSettings(options={"sasl.password": "hidden"})

    assert "hidden" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KAFKA__OPTIONS", '{"sasl.password": ["hidden"]}'),
        ("KAFKA__SASL_PASSWD", "hidden"),
        ("GATEWAY__API_KEYS", '["hidden"]'),
        ("GATEWAY__SECRET", "hidden"),
        ("GATEWAY", '{"host": ["hidden"]}'),
    ],
)
def test_credentials_do_not_show_where_a_setting_is_wrong(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"SEAMLESSFLOW_{name}", value)

    with pytest.raises(SystemExit) as ended:
        load(GatewaySettings)

    assert f"SEAMLESSFLOW_{name}" in str(ended.value)
    assert "hidden" not in str(ended.value)


def test_a_broken_rule_about_several_settings_repeats_none_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__OPTIONS", '{"sasl.password": "hidden"}')

    with pytest.raises(SystemExit) as ended:
        load(AgentsSettings)

    assert str(ended.value).splitlines()[1:] == [
        "  Value error, exactly one of agents.callable and agents.command must be set"
    ]


def test_types_are_spelled_as_people_write_them() -> None:
    explained = describe(GatewaySettings, "SEAMLESSFLOW_")

    assert "SEAMLESSFLOW_GATEWAY__API_KEYS  (dict[str, SecretStr]; " in explained
    assert "SEAMLESSFLOW_GATEWAY__MODELS  (tuple[str, ...]; " in explained
    assert "SEAMLESSFLOW_GATEWAY__PUBLIC_URL  (str | None; " in explained
