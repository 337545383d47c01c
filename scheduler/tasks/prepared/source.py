"""Rows of tasks as their readers give them, and the error for a source. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from seamlessflow.infra.errors import SeamlessFlowError

ColumnValues = Mapping[str, Any]
"""A row's values by column."""


class SourceRejected(SeamlessFlowError):
    """Error: a source of tasks cannot be used; an empty place means the source as a whole."""

    lasting = True

    def __init__(self, source: str, place: str, reason: str) -> None:
        self.source = source
        self.place = place
        self.reason = reason
        super().__init__(f"{source}, {place}: {reason}" if place else f"{source}: {reason}")


class SourceRow(NamedTuple):
    """A row and where it stands."""

    place: int
    """Number of the line or row, from 1."""
    values: ColumnValues
