"""The pages of the site that are made from the code."""

import pytest
from rich.text import Text

from scripts.site.reference import commands, gateway, metrics, records, settings, topics
from scripts.site.reference.markdown import entry, plain
from seamlessflow.config import RunConfig
from seamlessflow.infra.help import every_setting
from seamlessflow.infra.telemetry.names import METRICS
from seamlessflow.producers.gateway.routes import ROUTES
from seamlessflow.schemas.registry import raw_schemas
from seamlessflow.schemas.topics import DAY_MS, FOR_EVER, HOUR_MS, TOPICS
from tests.unit.site.reference_pages import terms


def test_each_setting_has_its_type_its_default_and_its_variable() -> None:
    page = settings.page()
    assert {setting.path for setting in every_setting(RunConfig)} <= set(terms(page))
    assert "\n    `int` · default `100` · `SEAMLESSFLOW_RUN__STEPS`\n    { .facts }\n" in page


@pytest.mark.parametrize(
    ("path", "variable"),
    [
        ("trainer.loss.name", "SEAMLESSFLOW_TRAINER__LOSS__NAME"),
        ("workers[].id", "SEAMLESSFLOW_WORKERS"),
        ("evaluation.sets.NAME.tasks", "SEAMLESSFLOW_EVALUATION__SETS"),
    ],
)
def test_a_setting_has_the_variable_of_the_list_or_map_that_holds_it(
    path: str, variable: str
) -> None:
    assert settings.setting_variable(path) == variable


def test_each_section_stands_once() -> None:
    headings = [line for line in settings.page().splitlines() if line.startswith("#")]
    assert len(headings) == len(set(headings))


def test_each_command_has_its_options() -> None:
    page = commands.page()
    assert {"train", "dlq retry", "topics create"} <= {name for name, _ in commands.commands()}
    for name, command in commands.commands():
        section = page[page.index(f"\n## {name}\n") :].split("\n## ")[1]
        for parameter in command.params:
            assert parameter.param_type_name == "argument" or parameter.opts[0] in section


def test_a_terminal_shows_each_help_text_whole() -> None:
    for name, command in commands.commands():
        for text in (command.help, *(parameter.help for parameter in command.params)):
            assert Text.from_markup(text or "").plain == (text or ""), name


def test_each_record_has_its_fields() -> None:
    page = records.page()
    for name, schema in raw_schemas().items():
        section = page[page.index(f"\n## {name}\n") :].split("\n## ")[1]
        assert [field["name"] for field in schema["fields"]] == list(terms(section))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("long", "`long`"),
        (["null", "string"], "`null` or `string`"),
        ({"type": "map", "values": "int"}, "map of `int`"),
        ({"type": "array", "items": "seamlessflow.Reward"}, "list of [`Reward`](#reward)"),
    ],
)
def test_a_type_is_spelled(kind: object, words: str) -> None:
    assert records.spelled(kind) == words


def test_each_topic_has_its_records() -> None:
    page = topics.page()
    for topic in TOPICS.values():
        section = page[page.index(f"\n## {topic.name} ") :].split("\n## ")[1]
        assert section.count("- [`") == len(topic.records)


@pytest.mark.parametrize(
    ("retention_ms", "words"),
    [(FOR_EVER, "kept for ever"), (3 * DAY_MS, "kept 3 d"), (26 * HOUR_MS, "kept 1 d 2 h")],
)
def test_a_retention_is_in_days_and_hours(retention_ms: int, words: str) -> None:
    assert topics.kept(retention_ms) == words


def test_each_metric_is_there() -> None:
    assert set(terms(metrics.page())) == set(METRICS)


def test_each_route_and_each_member_of_a_body_is_there() -> None:
    names = set(terms(gateway.page()))
    assert {gateway.title(path) for path in ROUTES} <= names
    assert {"POST /sessions/ID/reward", "GET /v1/models/MODEL", "group_size", "value"} <= names


def test_plain_text_is_shown_as_it_is() -> None:
    assert plain("a_b *c* [d] <e> `f_g`") == r"a\_b \*c\* \[d\] &lt;e> `f_g`"


def test_an_entry_has_its_facts_below_its_meaning() -> None:
    text = entry("run.lag", "Steps behind", ["`int`", "", "default `1`"])
    assert text == "`run.lag`\n:   Steps behind\n\n    `int` · default `1`\n    { .facts }\n"
