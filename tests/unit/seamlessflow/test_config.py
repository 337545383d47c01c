from pathlib import Path
from typing import Any

import pytest

from seamlessflow.config import RunConfig
from seamlessflow.config_file import ConfigRejected, FileRejected, load, parse, sections_of
from seamlessflow.infra.faults import Fault

AGENT = {"callable": "my.agent:run"}

LONG = "x" * 660_000


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
    first, second = (parse({"agents": AGENT, "gateway": {"max_in_flight": 9}}) for _ in range(2))
    assert first.gateway.secret != second.gateway.secret
    assert first.gateway.max_in_flight == 9


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({"rum": {}}, ["rum: there is no such setting; did you mean run?"]),
        (
            {"run": {"steps": 0}},
            ["run.steps: Input should be greater than or equal to 1 (got 0)"],
        ),
        (
            {"trainer": {"optimizer": {"rate": 1}, "loss": {"name": "ppo"}}},
            [
                "trainer.loss.name: must be one of ppo_clip, tis, icepop (got 'ppo'); "
                "did you mean ppo_clip?",
                "trainer.optimizer.rate: there is no such setting",
            ],
        ),
        (
            {"workers": [{"id": "a"}, {"id": "b", "tags": ["trian"]}]},
            ["workers[1].tags: 'trian' is not a known tag: is 'train' meant?"],
        ),
        (
            {"workers": [{"id": "a"}, {"id": "a"}]},
            ["workers: two workers have the same id 'a'"],
        ),
        (
            {"policy": {"renderer": {"nam": "qwen3"}}},
            ["policy.renderer.nam: there is no such setting; did you mean policy.renderer.name?"],
        ),
        (
            {"policies": {"second": {"model": "other"}}},
            ["policies.second.model: there is no such setting; there are frozen, policy, trainer"],
        ),
    ],
)
def test_a_wrong_configuration_is_refused_as_it_was_written(
    values: dict[str, object], lines: list[str]
) -> None:
    with pytest.raises(ConfigRejected) as refused:
        parse(values)
    assert list(refused.value.faults) == lines


def test_a_wrong_variable_is_named_as_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_RUN__STEPS", "0")
    monkeypatch.setenv("SEAMLESSFLOW_TRAINER", '{"loss": {"name": "ppo"}}')
    with pytest.raises(ConfigRejected) as refused:
        parse({"run": {"steps": 7, "lag": -1}})
    assert [line.split(": ")[0] for line in refused.value.faults] == [
        "SEAMLESSFLOW_RUN__STEPS",
        "run.lag",
        "SEAMLESSFLOW_TRAINER.loss.name",
    ]


def test_a_setting_beside_those_of_a_variable_is_named_as_in_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_RUN", '{"steps": 5}')
    monkeypatch.setenv("SEAMLESSFLOW_TRAINER", '{"loss": {"cap": 1}}')
    monkeypatch.setenv("SEAMLESSFLOW_WORKERS", '[{"tags": ["train"]}]')
    with pytest.raises(ConfigRejected) as refused:
        parse({"run": {"lag": -1}, "trainer": {"loss": {"name": "ppo"}}})
    assert sorted(line.split(": ")[0] for line in refused.value.faults) == [
        "SEAMLESSFLOW_TRAINER.loss.cap",
        "SEAMLESSFLOW_WORKERS[0].id",
        "run.lag",
        "trainer.loss.name",
    ]


def test_all_faults_are_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_GATWAY__PORT", "1")
    monkeypatch.setenv("SEAMLESSFLOW_AGENTS__COMMAND", "my-agent")

    def check(config: RunConfig) -> list[Fault]:
        assert config.run.steps == 7
        return [Fault(("policy", "model"), "is missing")]

    with pytest.raises(ConfigRejected) as refused:
        parse({"run": {"steps": 7, "lag": -1}, "out": 7}, check=check)
    assert [line.split(": ")[0] for line in refused.value.faults] == [
        "SEAMLESSFLOW_GATWAY__PORT",
        "SEAMLESSFLOW_AGENTS__COMMAND",
        "out",
        "run.lag",
        "policy.model",
    ]


def test_what_follows_from_a_wrong_setting_is_not_reported() -> None:
    def check(config: RunConfig) -> list[Fault]:
        return [
            Fault(("run", "steps"), "is wrong, too"),
            Fault((), "run.lag does not fit trainer.window"),
            Fault(("run", "lag"), "the default does not fit"),
        ]

    with pytest.raises(ConfigRejected) as refused:
        parse({"run": {"lag": -1}}, check=check)
    assert [line.split(":")[0] for line in refused.value.faults] == ["run.lag", "run.steps"]


def test_a_wrong_configuration_repeats_no_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_GATEWAY__ADMIN_KEY", "hidden")
    with pytest.raises(ConfigRejected) as refused:
        parse({"gateway": {"secret": ["hidden-as-well"]}})
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
    with pytest.raises(FileRejected, match="No such file"):
        load(tmp_path / "run.yaml")
    (tmp_path / "list.yaml").write_text("- a\n")
    with pytest.raises(FileRejected, match="not a mapping"):
        load(tmp_path / "list.yaml")


def test_a_section_that_stands_there_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("run: {steps: 1}\nkafka: {topic_prefix: a}\nkafka: {wait_s: 5}\n")
    with pytest.raises(FileRejected, match=r"(?s)kafka stands there twice.*line 3, column 1"):
        sections_of(file)
    file.write_text("a: &a {x: 1}\nb: &b {y: 2}\nc: {<<: [*a, *b], x: 3}\n")
    assert sections_of(file)["c"] == {"x": 3, "y": 2}


def test_a_time_of_the_clock_is_no_number(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("run: {policy: 1:30}\npacing: {task_timeout_s: 1:30}\n")
    with pytest.raises(
        ConfigRejected, match=r"pacing\.task_timeout_s: .*number.*'1:30'"
    ) as refusal:
        load(file)
    assert len(refusal.value.faults) == 1


def test_a_number_with_a_leading_zero_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("run:\n  steps: 010\n")
    with pytest.raises(
        FileRejected, match=r"(?s)010 is 8 to YAML 1.1 and 10 to.*line 2, column 10"
    ):
        load(file)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "trainer:\n  optimizer:\n    lr: 0,001\n",
            "trainer.optimizer.lr: is a text, since a comma is in it: write a decimal point, 0.001 "
            "(got '0,001')",
        ),
        (
            "run: {steps: '1,000'}",
            "run.steps: is a text, since a comma is in it: write a decimal point, 1.000, or 1000 "
            "if it stands between thousands (got '1,000')",
        ),
        (
            "run: {steps: yes}",
            "run.steps: must be a number, not true or false, which yes, no, on and off are also "
            "(got True)",
        ),
        (
            "start_timeout_s: on",
            "start_timeout_s: must be a number, not true or false, which yes, no, on and off are "
            "also (got True)",
        ),
    ],
)
def test_what_only_looks_like_a_number_is_refused(tmp_path: Path, text: str, line: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(ConfigRejected) as refusal:
        load(file)
    assert refusal.value.faults == (line,)


@pytest.mark.parametrize("text", ["1: 2", "trainer: {rewards: {1: 1.0, no: 1}}", "~: {}"])
def test_a_name_that_is_no_text_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(FileRejected, match=r"(?s)the name .* to YAML: put it in quotes.*line 1"):
        load(file)


def test_a_file_in_another_encoding_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_bytes("# K\u00e4se\nout: here\n".encode("latin-1"))
    with pytest.raises(
        FileRejected, match=r"not UTF-8 \(byte 0xe4 at column 4\): write it in UTF-8"
    ):
        load(file)
    file.write_bytes("out: here\n# K\u00e4se\n".encode("latin-1"))
    with pytest.raises(FileRejected, match=r"\(byte 0xe4 at column 4 of line 2\)"):
        load(file)


@pytest.mark.parametrize(
    ("name", "text"), [("run.yaml", "run: {{steps: {}}}"), ("run.toml", "n = {}")]
)
def test_a_number_of_more_digits_than_python_reads_is_refused(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text.format("9" * 5_000))
    with pytest.raises(FileRejected):
        sections_of(tmp_path / name)


@pytest.mark.parametrize("name", ["run.yaml", "run.toml"])
def test_an_empty_file_has_no_sections(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("# nothing yet\n")
    assert sections_of(tmp_path / name) == {}


def test_every_setting_is_explained() -> None:
    for name, field in RunConfig.model_fields.items():
        assert field.description, name


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (
            {"evaluation": {"sets": {"a b": {"tasks": "t"}}}},
            "evaluation.sets.a b: must be made of letters (A to Z), digits, _ and - alone "
            "(got 'a b')",
        ),
        (
            {"workers": [{"id": "a b"}]},
            "workers[0].id: must be made of letters (A to Z), digits, _, . and - alone (got 'a b')",
        ),
        (
            {"out": None},
            "out: it is empty (null, which ~ is also): give a value, or leave it out for its "
            "default",
        ),
        (
            {"trainer": None},
            "trainer: it is empty (null, which ~ is also): give a value, or leave it out for its "
            "default",
        ),
        ({"workers": 3}, "workers: must be a list (got 3)"),
        ({"simulation": 3}, "simulation: must be a section: names with values (got 3)"),
    ],
)
def test_a_value_of_another_form_is_told_in_the_words_of_a_file(
    values: dict[str, Any], line: str
) -> None:
    with pytest.raises(ConfigRejected) as error:
        parse(values)
    assert error.value.faults == (line,)


def test_a_reward_at_the_time_limit_must_be_one_that_counts() -> None:
    late = {**AGENT, "timeout_reward": -1.0}
    with pytest.raises(ConfigRejected, match=r"agents\.timeout_reward .* trainer\.rewards"):
        parse({"agents": late, "trainer": {"rewards": {"test": 1.0}}})
    both = parse({"agents": late, "trainer": {"rewards": {"test": 1.0, "reward": 0.5}}})
    assert both.trainer.reward_weights == {"test": 1.0, "reward": 0.5}
    with pytest.raises(ConfigRejected, match=r"agents\.timeout_reward .* a judge gives"):
        parse({"agents": late, "rewards": {"judges": {"reward": JUDGE}}})


JUDGE = {"callable": "my.judges:kind"}
MODEL = {"url": "http://127.0.0.1:1/v1", "name": "m", "prompt": "Rate: $answer"}


@pytest.mark.parametrize(
    ("judges", "words"),
    [
        ({"kind": {}}, "rewards.judges.kind: exactly one of callable, command and model must"),
        ({"kind": {**JUDGE, "command": ["judge"]}}, "rewards.judges.kind: exactly one of"),
        ({"kind": {"model": {**MODEL, "url": "there"}}}, "rewards.judges.kind.model.url: "),
        ({"kind": {"model": {**MODEL, "prompt": "$text"}}}, "$text stands for nothing"),
        ({"kind": {"model": {**MODEL, "prompt": "5 $"}}}, "a $ without a name stands for nothing"),
        ({"kind": {"model": {**MODEL, "score": "(a)(b)"}}}, "has 2 groups"),
        ({"kind": {"model": {**MODEL, "score": "("}}}, "is no regular expression"),
        ({"kind": {**JUDGE, "timeout_s": 0}}, "rewards.judges.kind.timeout_s: "),
        ({"a judge": JUDGE}, "rewards.judges: 'a judge' is no name of up to 64 letters"),
        ({"kind": JUDGE}, "rewards.judges.kind: trainer.rewards weighs no reward 'kind'"),
    ],
)
def test_a_judge_that_cannot_judge_is_refused(judges: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigRejected) as error:
        parse({"agents": AGENT, "rewards": {"judges": judges}})
    assert words in "\n".join(error.value.faults)


def test_two_judges_of_one_name_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    judge = "{callable: 'my.judges:kind'}"
    file.write_text(f"rewards:\n  judges:\n    reward: {judge}\n    reward: {judge}\n")
    with pytest.raises(FileRejected, match="reward stands there twice"):
        load(file)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"policy": {"model": LONG}}, "policy.model: is a path that has a name of 660,000 bytes"),
        ({"out": "name/" * 1000}, "out: is a path that has"),
        ({"pacing": {"sources": {"a": {"tasks": LONG}}}}, "pacing.sources.a.tasks: is a path"),
        ({"agents": {"callable": f"a:{LONG}"}}, "agents: has 66"),
        ({"agents": {"command": ["agent", LONG]}}, "agents: has 66"),
        ({"trainer": {"advantage": LONG}}, "trainer.advantage: "),
        ({"trainer": {"loss": {LONG: 1}}}, "trainer.loss.xxx"),
        ({"trainer": {"optimizer": {"lr": LONG}}}, "trainer.optimizer.lr: "),
        ({LONG: 1}, "there is no such setting"),
        ({"workers": [{"id": "w", "tags": ["x"]}] * 5000}, "more"),
    ],
)
def test_a_refusal_is_short_whatever_it_refuses(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigRejected, match="wrong") as refused:
        parse(values, check=lambda _: ())
    assert words in str(refused.value)
    assert len(str(refused.value)) < 20_000


def test_nothing_else_is_checked_where_a_path_is_too_long() -> None:
    def check(_: object) -> tuple[()]:
        raise AssertionError("a path of this length ends the check with an error of its own")

    with pytest.raises(ConfigRejected):
        parse({"policy": {"model": LONG}}, check=check)


def test_what_a_system_takes_is_no_fault(tmp_path: Path) -> None:
    config = parse({"out": tmp_path / ("ü" * 127), "agents": {"command": ["x" * 100_000]}})
    assert config.agents.command == ("x" * 100_000,)
