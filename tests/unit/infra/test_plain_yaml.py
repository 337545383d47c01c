"""YAML without its traps."""

import pytest
import yaml

from infra.plain_yaml import read_yaml


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


def test_a_name_that_stands_there_twice_is_refused() -> None:
    with pytest.raises(yaml.YAMLError, match=r"(?s)a stands there twice.*line 3"):
        read_yaml("x:\n a: 1\n a: 2\n")
