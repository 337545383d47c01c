"""The maker of the builders in this folder: functions that return a record with defaults.

A builder is named for what happened or is asked (`RoleAssigned`: `control.assigned`). A new field
of a record is one line in its builder, and no change to the tests.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from seamlessflow.schemas.records import Record

R = TypeVar("R", bound=Record)


def builder(default: R, *positional: str) -> Callable[..., R]:
    """Return a function that makes `default` with changed fields, `positional` ones in order."""

    def build(*values: Any, **changes: Any) -> R:
        placed = dict(zip(positional[: len(values)], values, strict=True))
        return replace(default, **placed, **changes)  # type: ignore[type-var]

    return build
