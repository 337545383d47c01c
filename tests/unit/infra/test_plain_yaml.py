"""YAML without its traps."""

import json

import pytest
import yaml

from seamlessflow.infra.plain_yaml import read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90", 90),
        ("-7", -7),
        ("0", 0),
        ("1_000", 1000),
        ("0x10", 16),
        ("1.5", 1.5),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1e-3", 0.001),
        ("2.5E+3", 2500.0),
        ("010.5", 10.5),
        ("-.inf", float("-inf")),
        ("yes", True),
        ("~", None),
        ("1:30", "1:30"),
        ("1:30:00", "1:30:00"),
        ("1:30.5", "1:30.5"),
        ("2026-01-01", "2026-01-01"),
        ("10:00:00", "10:00:00"),
        ("1.2.3", "1.2.3"),
        ("'010'", "010"),
    ],
)
def test_a_value_is_what_it_looks_like(text: str, value: object) -> None:
    assert read_yaml(f"[{text}]") == [value]
    assert type(read_yaml(f"[{text}]")[0]) is type(value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("010", "010 is 8 to YAML 1.1 and 10 to YAML 1.2: write one of them, or quotes"),
        ("-017", "-017 is -15 to YAML 1.1 and -17 to YAML 1.2"),
        ("089", "089 is 89 to YAML 1.2"),
        ("0_1", "0_1 is 1 to YAML 1.1 and 1 to YAML 1.2"),
    ],
)
def test_a_leading_zero_is_refused_with_the_numbers_that_it_may_be(text: str, reason: str) -> None:
    with pytest.raises(yaml.YAMLError, match=f"{reason}(.|\n)*line 2, column 9"):
        read_yaml(f"run:\n steps: {text}\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("!!int 010", "010 is 8 to YAML 1.1 and 10 to YAML 1.2"),
        ("!!float 010", "010 is 8 to YAML 1.1 and 10 to YAML 1.2"),
        ("!!int 1:30", "1:30 is not a number"),
        ("!!float 1:30.5", "1:30.5 is not a number"),
        ("!!int 1.5", "1.5 is not a number"),
        ("!!int x", "x is not a number"),
        ("!!int ''", " is not a number"),
        ("!!bool maybe", "maybe is not true or false"),
        ("!!null x", "x is not null"),
        ("!!timestamp 2026-13-99", "could not determine a constructor for the tag"),
        ("0x_", "0x_ is not a number"),
        ("-0b_", "-0b_ is not a number"),
        ("9" * 5000, "9" * 60 + " is not a number"),
    ],
)
def test_a_tag_makes_no_value_of_what_is_none_by_itself(text: str, reason: str) -> None:
    with pytest.raises(yaml.YAMLError, match=f"{reason}(.|\n)*line 2, column 9"):
        read_yaml(f"run:\n steps: {text}\n")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("!!int 7", 7),
        ("!!int '7'", 7),
        ("!!float 7", 7.0),
        ("!!str 010", "010"),
        ("!!bool no", False),
    ],
)
def test_a_tag_that_says_what_a_value_is_does_no_harm(text: str, value: object) -> None:
    assert read_yaml(f"[{text}]") == [value]
    assert type(read_yaml(f"[{text}]")[0]) is type(value)


def test_a_name_that_stands_there_twice_is_refused() -> None:
    with pytest.raises(yaml.YAMLError, match=r"(?s)a stands there twice.*line 3"):
        read_yaml("x:\n a: 1\n a: 2\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1: 2", 'the name 1 is a number to YAML: put it in quotes, as in "1"'),
        ("trainer: {rewards: {1: 1.0, no: 1}}", "trainer.rewards: the name 1 is a number"),
        ("trainer: {rewards: {no: 1}}", "trainer.rewards: the name no is true or false to YAML"),
        ("a: {~: 1}", "a: the name ~ is null"),
        ("a: {null: 1}", "a: the name null is null"),
        ("a:\n  ?\n  : 1", "a: the name nothing is null"),
        ("a: {b: {1.5: 1}}", "a.b: the name 1.5 is a number"),
        ("a: {b: {010: 1}}", "a.b: the name 010 is a number"),
        ("a: {!!timestamp 2026-01-01: 1}", "a: the name 2026-01-01 is no text"),
        ("a:\n  ? [x]\n  : 1", "a: a list or a mapping stands where a name belongs"),
        ("a:\n  ? {x: 1}\n  : 1", "a: a list or a mapping stands where a name belongs"),
        ("workers: [{id: a}, {true: 1}]", r"workers\[1\]: the name true is true or false"),
        ("- 1\n- {2: 3}", r"\[1\]: the name 2 is a number"),
        ("optimizer: {lr: 0,001}", "optimizer: a comma ends the number 0: .* as in 0.001"),
        ("{lr: 1,5}", "a comma ends the number 1: write a decimal point, as in 1.5"),
        ("{lr: 1, no}", "the name no is true or false"),
    ],
)
def test_a_name_that_is_no_text_is_refused_with_its_path(text: str, reason: str) -> None:
    with pytest.raises(yaml.YAMLError, match=f"{reason}(.|\n)*line "):
        read_yaml(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-01-01: 1", {"2026-01-01": 1}),
        ("1.2.3: 1", {"1.2.3": 1}),
        ("'1': 2", {"1": 2}),
        ("=: 1", {"=": 1}),
        ("a: &a {x: 1}\nb: {<<: *a, y: 2}", {"a": {"x": 1}, "b": {"x": 1, "y": 2}}),
        ("", None),
        ("{lr: 5, x}", {"lr": 5, "x": None}),
    ],
)
def test_all_that_is_a_text_may_be_a_name(text: str, value: object) -> None:
    assert read_yaml(text) == value


def test_a_mapping_may_hold_itself() -> None:
    mapping = read_yaml("a: &a {b: *a}")
    assert mapping["a"]["b"] is mapping["a"]


def test_json_is_yaml_also_with_escaped_characters_beyond_16_bits() -> None:
    value = {"out": "runs/\U0001f600 ü", "\U0001f600": [1, "x"]}
    assert read_yaml(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('run: {policy: "a\\ud800"}', "run.policy: "),
        ('run: {"\\udfff": 1}', "run: "),
        ('agents: {command: [x, "\\uD800"]}', r"agents.command\[1\]: "),
    ],
)
def test_half_of_a_character_is_refused_with_its_path(text: str, path: str) -> None:
    with pytest.raises(yaml.YAMLError, match=rf"{path}\\ud(800|fff) is half of a character"):
        read_yaml(text)
    assert read_yaml('"a\\udce4"') == "a\udce4", "a byte of a path that is not UTF-8"
