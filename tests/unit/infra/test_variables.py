"""True and false where a number belongs."""

from typing import Any

import pytest
from pydantic import Field, ValidationError

from seamlessflow.infra.faults import faults
from seamlessflow.infra.settings import Section


class ExampleSection(Section):
    rate: float = 0.1
    most: int | None = None
    places: tuple[int, ...] = ()
    weights: dict[str, float] = Field(default_factory=dict)
    shuffled: bool = False
    options: dict[str, str | int | bool] = Field(default_factory=dict)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"rate": True}, "rate: must be a number, not true or false"),
        ({"rate": False}, "rate: must be a number, not true or false"),
        ({"most": True}, "most: must be a number"),
        ({"places": [1, True]}, "places: [1]: must be a number"),
        ({"weights": {"a": 1, "b": False}}, "weights: b: must be a number"),
    ],
)
def test_they_are_refused_where_a_number_belongs(values: dict[str, Any], line: str) -> None:
    with pytest.raises(ValidationError) as refused:
        ExampleSection.model_validate(values)
    [fault] = faults(refused.value, ExampleSection)
    assert fault.line(lambda path: str(path[0])).startswith(line)


@pytest.mark.parametrize(
    "values",
    [
        {"shuffled": True, "options": {"enable.idempotence": True}},
        {"rate": "0.5", "most": "3", "places": [1, 2], "weights": {"a": 1}},
        {"most": None},
    ],
)
def test_all_else_is_taken_as_before(values: dict[str, Any]) -> None:
    ExampleSection.model_validate(values)
