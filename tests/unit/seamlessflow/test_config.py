from pathlib import Path
from typing import Any

import pytest

from seamlessflow.config import ConfigRejected, RunConfig, load, parse, require_files

AGENT = {"callable": "my.agent:run"}


def test_a_yaml_file_says_what_the_processes_settings_say(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "out: here\n"
        "run: {steps: 7, lag: 2}\n"
        "agents: {command: [my-agent, --fast]}\n"
        "workers:\n  - {id: a, tags: [rollout]}\n  - {id: b, tags: [rollout, train]}\n"
    )
    config = load(file)
    assert (config.run.steps, config.run.lag) == (7, 2)
    assert config.agents.command == ("my-agent", "--fast")
    assert [worker.tags for worker in config.workers] == [("rollout",), ("rollout", "train")]
    assert config.kafka_dir == Path("here/kafka")


def test_a_toml_file_does_as_well(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[agents]\ncallable = "my.agent:run"\n[run]\nsteps = 7\n')
    assert load(file).run.steps == 7


def test_an_environment_variable_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_RUN__STEPS", "9")
    config = parse({"agents": AGENT, "run": {"steps": 7, "lag": 0}})
    assert (config.run.steps, config.run.lag) == (9, 0)


def test_another_cluster_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", "kafka.example:9092")
    kafka = parse({"agents": AGENT}).kafka
    assert kafka is not None
    assert kafka.bootstrap_servers == "kafka.example:9092"


def test_a_gateway_secret_is_found_where_none_is_given() -> None:
    one, two = (parse({"agents": AGENT, "gateway": {"max_in_flight": 9}}) for _ in range(2))
    assert one.gateway.secret != two.gateway.secret
    assert one.gateway.max_in_flight == 9


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"agents": AGENT, "rum": {}}, "SEAMLESSFLOW_RUM"),
        ({"agents": AGENT, "run": {"steps": 0}}, "SEAMLESSFLOW_RUN__STEPS"),
        ({}, "exactly one of agents.callable and agents.command"),
        ({"agents": AGENT, "workers": [{"id": "a"}, {"id": "a"}]}, "same id"),
        ({"agents": AGENT, "workers": [{"id": "a", "tags": ["train"]}]}, "no worker can roll out"),
    ],
)
def test_a_wrong_configuration_is_refused_by_name(values: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigRejected, match=said):
        parse(values)


def test_a_wrong_configuration_repeats_no_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_GATEWAY__ADMIN_KEY", "hidden")
    with pytest.raises(ConfigRejected) as refused:
        parse({"gateway": {"secret": "hidden-as-well"}})
    assert "hidden" not in str(refused.value)


def test_a_misspelt_section_of_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_GATWAY__PORT", "1")
    with pytest.raises(ConfigRejected, match=r"did you mean SEAMLESSFLOW_GATEWAY__PORT\?"):
        parse({"agents": AGENT})


def test_text_where_json_belongs_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_GATEWAY__MODELS", "policy")
    with pytest.raises(ConfigRejected, match="SEAMLESSFLOW_GATEWAY__MODELS: must be JSON"):
        parse({"agents": AGENT})


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigRejected, match="No such file"):
        load(tmp_path / "run.yaml")
    (tmp_path / "list.yaml").write_text("- a\n")
    with pytest.raises(ConfigRejected, match="not a mapping"):
        load(tmp_path / "list.yaml")


def test_a_training_wants_its_model_and_tasks(tmp_path: Path) -> None:
    model, tasks = tmp_path / "model", tmp_path / "tasks.jsonl"
    values: dict[str, Any] = {"agents": AGENT, "policy": {"model": model}}
    with pytest.raises(ConfigRejected, match=r"policy\.model"):
        require_files(parse(values))
    model.mkdir()
    (model / "config.json").write_text("{}")
    with pytest.raises(ConfigRejected, match="no file of tasks is named"):
        require_files(parse(values))
    values["pacing"] = {"tasks": tasks}
    with pytest.raises(ConfigRejected, match="there is no file"):
        require_files(parse(values))
    tasks.write_text('{"id": 1}')
    require_files(parse(values))


def test_every_setting_is_explained() -> None:
    for name, field in RunConfig.model_fields.items():
        assert field.description, name
