"""The check before a run: each fault is named with its setting, all at once."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.checks.check import (
    before_demo,
    before_real_demo,
    before_training,
)
from seamlessflow.config_file import Check
from seamlessflow.infra.network.addresses import HOST
from tests.builders.model_hub import COMMIT, LATER, snapshot_directory
from tests.builders.run_files import changed, evaluation, faults, model_directory, run_values
from tests.paths import HARD_NAMES, ROOT

LIMIT_S = 120
HEAVY = "torch transformers vllm confluent_kafka matplotlib"


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    """Return a configuration without a fault, for the working directory."""
    monkeypatch.chdir(tmp_path)
    return run_values(tmp_path)


def test_a_service_needs_neither_tasks_nor_an_agent_but_a_key(values: Mapping[str, Any]) -> None:
    service = {
        name: section for name, section in values.items() if name not in ("pacing", "agents")
    }
    (line,) = faults(service)

    assert line.startswith("gateway.admin_key: neither tasks nor an agent is named")
    assert faults(changed(service, "gateway", admin_key="a key of sixteen letters")) == ()


def test_a_run_does_not_go_on_with_a_model_of_other_tokens(
    values: Mapping[str, Any], tmp_path: Path
) -> None:
    model, tokenizer = tmp_path / "model" / "tokenizer.json", tmp_path / "out/weights/tokenizer"
    tokenizer.mkdir(parents=True)
    (tokenizer / model.name).write_bytes(model.read_bytes())
    assert faults(values) == ()

    (tokenizer / model.name).write_text('{"other": 1}')
    (line,) = faults(values)
    assert line.startswith(f"policy.model: {model.parent}: its tokenizer.json is not that of this")
    assert "name the model that the run began with" in line


def test_a_run_does_not_go_on_with_another_commit_of_its_model(
    values: Mapping[str, Any], tmp_path: Path
) -> None:
    tokenizer = tmp_path / "out/weights/tokenizer"
    tokenizer.mkdir(parents=True)
    (tokenizer / ".origin").write_text(f"org/name@{COMMIT}")
    same = snapshot_directory(tmp_path, "org/name")
    for directory in (same, later := snapshot_directory(tmp_path, "org/name", LATER)):
        directory.mkdir(parents=True)
        model_directory(directory)
    assert faults(changed(values, "policy", model=same)) == ()
    assert faults(values) == (), "a directory of the same tokens is not asked for its origin"

    (line,) = faults(changed(values, "policy", model=later))
    assert f"org/name is now the commit {LATER}, and this run began with org/name@{COMMIT}" in line
    assert f"write org/name@{COMMIT} to go on with it, or begin another run (out)" in line


@pytest.mark.parametrize("lacking", ["pacing", "agents"])
def test_half_a_run_is_no_service(values: Mapping[str, Any], lacking: str) -> None:
    lines = faults({name: section for name, section in values.items() if name != lacking})

    assert lines and not any(line.startswith("gateway.admin_key") for line in lines)


@pytest.mark.parametrize("check", [before_training, before_demo, before_real_demo])
def test_a_run_without_a_fault_may_start(values: Mapping[str, Any], check: Check) -> None:
    assert faults(values, check) == ()


@pytest.mark.parametrize(
    ("section", "more", "line"),
    [
        (
            "agents",
            {"callable": "my_agnt:run"},
            "among what is installed); did you mean my_agent?",
        ),
        ("agents", {"callable": "my_agent:rum"}, "no function rum; did you mean run?"),
        ("agents", {"callable": "my_agent"}, "agents.callable: 'my_agent' is not module:function"),
        (
            "agents",
            {"reward": "my_agent:strategy"},
            "agents.reward: 'my_agent:strategy' is called with (task, result), but it is defined "
            "as (snapshot): too many positional arguments",
        ),
        (
            "agents",
            {"callable": "", "command": ["/nope/agent"]},
            "agents.command: there is no program /nope/agent",
        ),
        ("agents", {"callable": ""}, "exactly one of agents.callable, agents.command"),
        (
            "rewards",
            {"judges": {"reward": {"command": ["/nope/judge"]}}},
            "rewards.judges.reward.command: there is no program /nope/judge",
        ),
        ("scheduler", {"policy": "multiplex"}, "did you mean multiplexed?"),
        ("scheduler", {"policy": "my_agent:nope"}, "scheduler.policy: 'my_agent:nope' cannot be"),
        (
            "trainer",
            {"mlflow_uri": "http://127.0.0.1:5000"},
            "mlflow-skinny is not installed: pip install mlflow-skinny",
        ),
        (
            "trainer",
            {"mlflow_uri": "sqlite:///runs.db"},
            "trainer.mlflow_uri: mlflow is not installed: pip install mlflow",
        ),
        ("trainer", {"window": 2}, "trainer.window must not be smaller than run.groups_per_step"),
        ("trainer", {"device": "cuda:99"}, "trainer.device: there is no cuda:99"),
        (
            "rollout",
            {"engine": "vllm", "vllm": {"python": "nope"}},
            "rollout.vllm.python: there is",
        ),
        ("weights", {"url": ""}, "weights.url: '' is no whole path, as file:///mnt/weights is"),
        ("weights", {"url": "file:sent"}, "weights.url: 'file:sent' is no whole path"),
        ("policy", {"model": "nope"}, "policy.model: there is no directory nope"),
        ("policy", {"renderer": {"name": "glm-4.5"}}, "policy.renderer: renderer glm-4.5: the tok"),
        ("pacing", {"tasks": None}, "pacing.tasks: no file of tasks is named"),
        (
            "pacing",
            {"tasks": None, "forks": "tasks.jsonl"},
            'pacing.forks: tasks.jsonl, line 1: not a JSON object with "id", "task", "samples"',
        ),
        ("evaluation", {"tasks": "nope"}, "evaluation.tasks: nope: No such file or directory"),
    ],
)
def test_a_fault_is_named_with_its_setting(
    values: Mapping[str, Any], section: str, more: dict[str, object], line: str
) -> None:
    messages = faults(changed(values, section, **more))
    assert [line in message for message in messages] == [True] + [False] * (len(messages) - 1), (
        messages
    )


def test_a_strategy_of_the_user_is_accepted(values: Mapping[str, Any]) -> None:
    assert faults(changed(values, "scheduler", policy="my_agent:strategy")) == ()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import nopackage", "my_agent.py, line 1: No module named 'nopackage'"),
        ("\nx = 1 / 0", "my_agent.py, line 2: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "my_agent.py, line 1: SystemExit: 3"),
        ("import os\nos._exit(3)", "it ends the process"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_its_line(
    values: Mapping[str, Any], source: str, reason: str
) -> None:
    Path("my_agent.py").write_text(source)
    [line] = faults(values)
    assert line.startswith("agents.callable: 'my_agent:run' ")
    assert reason in line


def test_a_module_that_is_never_imported_is_not_waited_for(values: Mapping[str, Any]) -> None:
    Path("my_agent.py").write_text("import threading\nthreading.Event().wait()")
    [line] = faults({**values, "start_timeout_s": 3})
    assert line.endswith("not imported within 3 s (start_timeout_s)")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["{"], "line 1: "),
        (['{"id": 1}', '{"name": 2}'], 'line 2: not a JSON object with an "id"'),
        (['{"id": 1}', "", '{"id": "1"}'], "line 3: line 1 has the id '1', too"),
        ([""], "there are no tasks in it"),
    ],
)
def test_the_first_lines_of_tasks_are_checked(
    values: Mapping[str, Any], lines: Sequence[str], reason: str
) -> None:
    Path("tasks.jsonl").write_text("\n".join(lines))
    [line] = faults(values)
    assert line.startswith("pacing.tasks: ")
    assert reason in line


def test_a_model_that_the_torch_engine_cannot_run_is_named(values: Mapping[str, Any]) -> None:
    Path("model/config.json").write_text('{"rope_scaling": {"type": "longrope"}}')
    [line] = faults(values)
    assert line.startswith("rollout.engine: torch cannot sample from ")
    assert "longrope" in line
    assert faults(changed(values, "rollout", engine="scripted")) == ()


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_configuration_of_a_model_that_is_no_object_is_named(
    values: Mapping[str, Any], text: str
) -> None:
    Path("model/config.json").write_text(text)
    [line] = faults(values)
    assert line.startswith("policy.model: ")
    assert "config.json cannot be read" in line


@pytest.mark.parametrize("host", ["[::1]", "1.2.3.4", "\u00fcn\u00ef.invalid"])
@pytest.mark.parametrize(
    ("section", "setting"),
    [("gateway", "host"), ("trainer", "host"), ("telemetry", "metrics_host")],
)
def test_a_host_on_which_nothing_can_listen_is_named_once(
    values: Mapping[str, Any], section: str, setting: str, host: str
) -> None:
    more = {"port": 0} if section == "gateway" else {}
    [line] = faults(changed(values, section, **{setting: host}, **more))
    assert line.startswith(f"{section}.{setting}: {host} is ")


def test_an_output_in_the_home_directory_is_not_made_in_one_named_so(
    values: Mapping[str, Any],
) -> None:
    messages = faults({**values, "out": "~/run"})
    assert messages == ("out: ~/run: ~ is not expanded here: write the whole path",)
    assert not Path("~").exists()


def test_a_port_that_is_taken_is_named(values: Mapping[str, Any]) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        messages = faults(changed(values, "gateway", port=port))
    assert messages == (f"gateway.port: {port} is taken by another program",)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_is_named(values: Mapping[str, Any]) -> None:
    Path("locked").mkdir(mode=0o500)
    assert faults({**values, "out": "locked/run"}) == (
        f"out: nothing can be written to {Path('locked').absolute()}",
    )


@pytest.mark.parametrize(
    "setting", ["out", "weights.url", "weights.cache_dir", "trainer.weights_dir"]
)
def test_every_directory_of_the_run_must_be_one(
    setting: str, values: Mapping[str, Any], tmp_path: Path
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    section, _, name = setting.partition(".")
    named = {name: str(taken / "run")} if name else taken / "run"
    assert faults({**values, section: named}) == (f"{setting}: nothing can be written to {taken}",)


@pytest.mark.parametrize("target", ["gone", "link"])
def test_a_directory_behind_a_link_that_leads_nowhere_is_named(
    target: str, values: Mapping[str, Any]
) -> None:
    link = Path("link").absolute()
    link.symlink_to(link.parent / target)
    assert faults({**values, "out": "link"}) == (f"out: {link} is a link that leads nowhere",)


def test_a_directory_below_a_link_that_leads_nowhere_is_named(values: Mapping[str, Any]) -> None:
    link = Path("link").absolute()
    link.symlink_to("gone")
    assert faults({**values, "out": "link/run"}) == (f"out: {link} is a link that leads nowhere",)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("n" * 256, "take 255"), ("p/" * 2500, "takes 4,095"), ("a\0b", "null character")],
)
def test_a_directory_that_no_disk_can_have_is_named(
    values: Mapping[str, Any], name: str, reason: str
) -> None:
    for setting, more in (("out", name), ("trainer", {"weights_dir": name})):
        [line] = faults({**values, setting: more})
        assert line.startswith(setting)
        assert "is a path that has" in line
        assert reason in line


@pytest.mark.parametrize("name", HARD_NAMES)
def test_a_run_may_lie_in_a_directory_of_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    directory = tmp_path / name
    directory.mkdir()
    monkeypatch.chdir(directory)
    settings = changed(run_values(directory), "weights", url=(directory / "sent").as_uri())
    assert faults({**settings, "out": str(directory / "out")}) == ()


def test_an_evaluation_needs_weights_and_tasks_alone(values: Mapping[str, Any]) -> None:
    none_to_train = changed(values, "pacing", tasks=None)
    assert faults(none_to_train, evaluation(tasks=Path("tasks.jsonl"))) == ()


@pytest.mark.parametrize("lost", ["config.json", "tokenizer.json", "model.safetensors"])
def test_weights_that_lack_a_file_are_not_evaluated(values: Mapping[str, Any], lost: str) -> None:
    weights = model_directory(Path("weights"))
    (weights / lost).unlink()
    [line] = faults(values, evaluation(weights, Path("tasks.jsonl")))
    assert line == f"weights: {weights.absolute()} lacks {lost}"


def test_weights_that_the_renderer_does_not_fit_are_not_evaluated(
    values: Mapping[str, Any],
) -> None:
    asked = changed(values, "policy", renderer={"name": "glm-4.5"})
    [line] = faults(asked, evaluation(tasks=Path("tasks.jsonl")))
    assert line.startswith("policy.renderer: renderer glm-4.5: the tokenizer lacks")


@pytest.mark.parametrize(
    ("tasks", "line"),
    [
        (None, "evaluation.tasks: no file of tasks is named, here or with --tasks"),
        (Path("nope"), "tasks: nope: No such file or directory"),
    ],
)
def test_tasks_that_cannot_be_evaluated_on_are_named(
    values: Mapping[str, Any], tasks: Path | None, line: str
) -> None:
    assert faults(values, evaluation(tasks=tasks)) == (line,)


@pytest.mark.parametrize("engine", ["scripted", "clock"])
def test_a_rehearsal_needs_no_weights(values: Mapping[str, Any], engine: str) -> None:
    (values["policy"]["model"] / "model.safetensors").unlink()
    [missing] = faults(changed(values, "rollout", engine="scripted"))
    assert "lacks model.safetensors" in missing
    clocks = changed(changed(values, "trainer", backend="clock"), "rollout", engine=engine)
    assert faults(clocks) == ()


def test_the_check_of_a_training_imports_nothing_heavy(values: Mapping[str, Any]) -> None:
    program = f"""
import sys
from seamlessflow.checks.check import before_training
from tests.builders.run_files import faults, run_values
from pathlib import Path
assert faults(run_values(Path.cwd()), before_training) == ()
print(" ".join(sorted(set({HEAVY!r}.split()) & set(sys.modules))))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=LIMIT_S,
    )
    assert (done.stdout, done.stderr) == ("\n", "")
