"""Settings explain themselves, name what is wrong, and are light to read."""

import importlib
import logging
import subprocess
import sys

import pytest
from pydantic import BaseModel

from seamlessflow.config import RunConfig
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.help import describe
from seamlessflow.infra.kafka.client import client_options
from seamlessflow.infra.settings import KafkaSettings, ProcessSettings, SecretStr, load
from seamlessflow.infra.variables import SECTIONS
from seamlessflow.producers.agents.settings import AgentsSettings
from seamlessflow.producers.gateway.settings import GatewaySettings
from seamlessflow.trainer.settings import TrainerSettings

PROCESSES = {
    "seamlessflow.consumers.trajectories": "ManagerSettings",
    "seamlessflow.producers.agents": "AgentsSettings",
    "seamlessflow.producers.gateway": "GatewaySettings",
    "seamlessflow.producers.rollout": "RolloutSettings",
    "seamlessflow.scheduler": "SchedulerSettings",
    "seamlessflow.trainer": "TrainerSettings",
}
HEAVY = ("torch", "transformers", "renderers", "matplotlib")


def refused(settings: type[ProcessSettings], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines of a process that refuses its settings."""
    with pytest.raises(SystemExit) as ended:
        load(settings)
    assert ended.value.code == ExitStatus.LASTING
    first, *lines = capsys.readouterr().err.splitlines()
    assert first == "settings are not valid:"
    return lines


def settings_of(process: str) -> type[BaseModel]:
    model: type[BaseModel] = getattr(
        importlib.import_module(f"{process}.settings"), PROCESSES[process]
    )
    return model


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


def test_a_wrong_setting_is_reported_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_TELEMETRY__SAMPLE_RATIO", "7")

    [line] = refused(ProcessSettings, capsys)
    assert "SEAMLESSFLOW_TELEMETRY__SAMPLE_RATIO" in line


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_a_number_without_an_end_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    """Records and processes get settings as JSON, which has no such number."""
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__WAIT_S", value)

    [line] = refused(ProcessSettings, capsys)
    assert "SEAMLESSFLOW_KAFKA__WAIT_S: Input should be a finite number" in line


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("SEAMLESSFLOW_GATWAY__PORT", "; did you mean SEAMLESSFLOW_GATEWAY__PORT?"),
        ("seamlessflow_gatway__port", "; did you mean SEAMLESSFLOW_GATEWAY__PORT?"),
        ("SEAMLESSFLOW_DATADIR", "; did you mean SEAMLESSFLOW_DATA_DIR?"),
        ("SEAMLESSFLOW_NOSUCH__THING", ""),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_nearest_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, hint: str
) -> None:
    monkeypatch.setenv(name, "1")

    lines = refused(ProcessSettings, capsys)

    assert lines == [f"  {name}: no process reads it{hint}"]


@pytest.mark.parametrize(
    "name", ["TRAINER__SEED", "OUT", "KEY", "VENV", "SESSION", "TEST_SEED", "GATEWAY_SERVICE_HOST"]
)
def test_variables_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"SEAMLESSFLOW_{name}", "1")

    assert load(ProcessSettings) == ProcessSettings()


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        (
            "TRAINER__LOSS__NAM",
            "tis",
            "there is no such setting; did you mean SEAMLESSFLOW_TRAINER__LOSS__NAME?",
        ),
        (
            "TRAINER__LOSS__NAME",
            "ppo",
            "must be one of ppo_clip, tis, icepop (got 'ppo'); did you mean ppo_clip?",
        ),
        (
            "TRAINER__ADVANTAGE",
            "zzz",
            "must be one of grpo, grpo_unscaled, rloo, maxrl, grpo_batch, gdpo, turn, "
            "session_and_turn, "
            "reinforce_pp, reinforce_pp_baseline, gae, turn_gae, habc, distill (got 'zzz')",
        ),
    ],
)
def test_a_name_that_does_not_exist_is_refused_with_the_nearest_one(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: str,
    line: str,
) -> None:
    monkeypatch.setenv(f"SEAMLESSFLOW_{name}", value)

    lines = refused(TrainerSettings, capsys)

    assert lines == [f"  SEAMLESSFLOW_{name}: {line}"]


def test_a_filter_that_does_not_exist_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_TRAINER__FILTERS", '{"zero_varience": "drop"}')

    lines = refused(TrainerSettings, capsys)

    assert lines == [
        "  SEAMLESSFLOW_TRAINER__FILTERS__ZERO_VARIENCE: must be one of zero_variance, "
        "untrainable, spread (got 'zero_varience'); did you mean zero_variance?"
    ]


def test_all_sections_are_known() -> None:
    classes: list[type[BaseModel]] = [RunConfig, *(settings_of(process) for process in PROCESSES)]

    assert sorted({name.upper() for section in classes for name in section.model_fields}) == list(
        SECTIONS
    )


@pytest.mark.parametrize("text", ["rollout", "{'a': 1}"])
def test_text_where_json_belongs_is_reported_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__OPTIONS", text)

    [line] = refused(ProcessSettings, capsys)
    assert "SEAMLESSFLOW_KAFKA__OPTIONS: must be JSON" in line


def test_credentials_do_not_show() -> None:
    options: dict[str, str | int | float | bool | SecretStr] = {
        "sasl.username": "me",
        "sasl.password": "hidden",
        "ssl.key.password": "hidden",
        "ssl.key.pem": "hidden",
        "sasl.oauthbearer.client.secret": "hidden",
    }
    settings = KafkaSettings(options=options)

    shown = [repr(settings), str(settings.options), str(settings.model_dump()), f"{settings!s}"]
    assert "hidden" not in str(shown) + settings.model_dump_json()
    assert settings.options["sasl.username"] == "me"
    sent = {name: text for name, text in client_options(settings).items() if name in options}
    assert sent == options


def test_no_secret_of_any_process_is_in_its_settings_as_text(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in {
        "KAFKA__OPTIONS": '{"sasl.password": "hidden"}',
        "GATEWAY__SECRET": "hidden and long enough",
        "GATEWAY__ADMIN_KEY": "hidden",
        "GATEWAY__API_KEYS": '{"team": "hidden"}',
        "AGENTS__ADMIN_KEY": "hidden",
        "AGENTS__CALLABLE": "a:b",
    }.items():
        monkeypatch.setenv(f"SEAMLESSFLOW_{name}", value)
    for kind in (GatewaySettings, AgentsSettings):
        settings = kind()
        logging.getLogger("a process").warning(
            "%s %r %s", settings, settings, settings.model_dump()
        )
    assert len(caplog.records) == 2
    assert "hidden" not in caplog.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KAFKA__OPTIONS", '{"sasl.password": ["hidden"]}'),
        ("KAFKA__SASL_PASSWD", "hidden"),
        ("KAFKA__BLOBS", "s3://me:hidden@bucket/path"),
        ("GATEWAY__API_KEYS", '["hidden"]'),
        ("GATEWAY__SECRET", "hidden"),
        ("GATEWAY", '{"host": ["hidden"]}'),
    ],
)
def test_credentials_do_not_show_where_a_setting_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    monkeypatch.setenv(f"SEAMLESSFLOW_{name}", value)

    lines = refused(GatewaySettings, capsys)

    assert f"SEAMLESSFLOW_{name}" in str(lines)
    assert "hidden" not in str(lines)


@pytest.mark.parametrize("name", ["WEIGHTS__URL", "TRAINER__MLFLOW_URI"])
def test_a_url_with_a_password_is_refused_without_showing_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setenv(f"SEAMLESSFLOW_{name}", "https://me:hidden@host/run")

    lines = str(refused(TrainerSettings, capsys))

    assert f"SEAMLESSFLOW_{name}: no password may be in it" in lines
    assert "hidden" not in lines


def test_a_broken_rule_about_several_settings_repeats_none_of_them(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__OPTIONS", '{"sasl.password": "hidden"}')

    lines = refused(AgentsSettings, capsys)

    agents = "agents.callable, agents.command and agents.environment"
    assert lines == [f"  exactly one of {agents} must be set"]


def test_types_are_spelled_as_people_write_them() -> None:
    explained = describe(GatewaySettings, "SEAMLESSFLOW_")

    assert "SEAMLESSFLOW_GATEWAY__API_KEYS  (dict[str, SecretStr]; " in explained
    assert "SEAMLESSFLOW_GATEWAY__MODELS  (tuple[str, ...]; " in explained
    assert "SEAMLESSFLOW_GATEWAY__PUBLIC_URL  (str | None; " in explained


def test_a_release_that_there_is_not_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__WRITE_RELEASE", "0.0.9")

    (line,) = refused(ProcessSettings, capsys)

    assert line.startswith("  SEAMLESSFLOW_KAFKA__WRITE_RELEASE: ")
    assert "release 0.0.9 is unknown here; known are 0.1.0" in line
