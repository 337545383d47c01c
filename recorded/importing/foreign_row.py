"""Rows in files as token sequences, whatever their columns are called. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.recorded.export.forms import IGNORED
from seamlessflow.schemas.arrays import Float32s, Int32s

RowRead = Mapping[str, Any]


class ForeignRowRejected(SeamlessFlowError):
    """A row in a file that cannot be a trajectory."""

    lasting = True

    def __init__(self, path: str, row: int, reason: str) -> None:
        self.path = path
        self.row = row
        self.reason = reason
        super().__init__(f"{path}, row {row}: {reason}")


@dataclass(frozen=True, slots=True)
class ForeignRow:
    """One sequence; all arrays have an entry for each token."""

    ids_T: Int32s
    sampled_T: NDArray[np.bool_]
    """True for a token that the file leaves in its loss."""
    logprobs_T: Float32s | None
    temperatures_T: Float32s
    versions_T: Int32s
    """Policy version, -1 if the file has none."""
    reward: float | None
    several_versions: tuple[int, int] | None
    """Lowest and highest version, if the row has no versions for single tokens."""
    named: Mapping[str, str]
    """Text columns, for example group, task, and an export's session."""
    begins: tuple[int, ...] = (0,)
    """First tokens of its branches, each a whole sequence with its own prompt."""
    conversation: Mapping[str, str] = field(default_factory=dict)
    """Messages that its tokens were rendered from, as JSON, and their source; empty without any."""


class _Columns:
    """A row's columns, each checked when it is read. Raises `ValueError`."""

    def __init__(self, row: RowRead) -> None:
        self.row = row

    def has(self, name: str) -> bool:
        return self.row.get(name) is not None

    def array(self, name: str, kind: type[np.int32 | np.float32 | np.bool_]) -> NDArray[Any]:
        """Return an array of numbers, each of this kind."""
        value = self.row.get(name)
        if not isinstance(value, list):
            raise ValueError(f"{name} is no list" if self.has(name) else f"{name} is missing")
        try:
            numbers: NDArray[Any] = np.array(value)
        except ValueError:
            raise ValueError(f"{name} is not a list of numbers") from None
        if not value:
            return np.empty(0, kind)
        if (
            numbers.ndim != 1
            or numbers.dtype.kind not in ("f" if kind is np.float32 else "") + "iub"
        ):
            raise ValueError(f"{name} has something else than {_NAMES[kind]}")
        if kind is np.int32 and (numbers.min() < _LEAST or numbers.max() > _MOST):
            raise ValueError(f"{name} has a number that is no int32")
        if kind is np.bool_ and not np.isin(numbers, (0, 1)).all():
            raise ValueError(f"{name} has something else than {_NAMES[kind]}")
        if kind is np.float32 and not np.isfinite(numbers).all():
            raise ValueError(f"{name} has a number that is not finite")
        return numbers.astype(kind)

    def optional(
        self, name: str, kind: type[np.int32 | np.float32 | np.bool_]
    ) -> NDArray[Any] | None:
        return self.array(name, kind) if self.has(name) else None

    def number(self, name: str) -> float | None:
        value = self.row.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
            raise ValueError(f"{name} is no number")
        return float(value)


_NAMES = {np.int32: "whole numbers", np.float32: "numbers", np.bool_: "0 and 1"}
_LEAST = np.iinfo(np.int32).min
_MOST = np.iinfo(np.int32).max
_TEXTS = (
    *("session_id", "group_id", "task_id", "policy"),
    *("status", "cause", "tokenizer_hash", "cluster"),
)


def foreign_row(path: str, number: int, row: RowRead) -> ForeignRow:
    """Return a row's sequence; `number` counts rows from 1. Raises `ForeignRowRejected`."""
    try:
        made = _read(_Columns(row))
        _check(made)
    except ValueError as error:
        raise ForeignRowRejected(path, number, str(error)) from None
    return made


def _read(columns: _Columns) -> ForeignRow:
    for name, layout in _LAYOUTS.items():
        if columns.has(name):
            return layout(columns)
    names = ", ".join(_LAYOUTS)
    raise ValueError(f"no tokens: it has none of the columns {names}")


def _split(columns: _Columns, behind: str, reward: str) -> ForeignRow:
    """Return a row in which the prompt and the part behind it are separate columns."""
    prompt_T = columns.array("prompt_ids", np.int32)
    ids_T = columns.array(f"{behind}_ids", np.int32)
    at = len(prompt_T)
    size = len(ids_T)
    mask = f"{behind}_mask"

    def whole(name: str, fill: float) -> NDArray[Any] | None:
        if not columns.has(name):
            return None
        values = _as_long(name, columns.array(name, np.float32), size)
        return np.concatenate([np.full(at, fill, np.float32), values])

    mask_T = columns.optional(mask, np.bool_)
    mask_T = np.ones(size, np.bool_) if mask_T is None else _as_long(mask, mask_T, size)
    return _made(
        columns,
        np.concatenate([prompt_T, ids_T]),
        np.concatenate([np.zeros(at, np.bool_), mask_T]),
        whole(f"{behind}_logprobs", 0),
        whole(f"{behind}_temperatures", 1),
        reward,
    )


def _prime_rl(columns: _Columns) -> ForeignRow:
    return _split(columns, "completion", "reward")


def _verl(columns: _Columns) -> ForeignRow:
    return _split(columns, "response", "reward_score")


def _chain(columns: _Columns) -> ForeignRow:
    ids_T = columns.array("token_ids", np.int32)
    sampled_T = columns.array("mask", np.bool_)
    logprobs_T = columns.optional("logprobs", np.float32)
    temperatures_T = columns.optional("temperatures", np.float32)
    return _made(columns, ids_T, sampled_T, logprobs_T, temperatures_T, "reward")


def _trl(columns: _Columns) -> ForeignRow:
    ids_T = columns.array("input_ids", np.int32)
    labels_T = _as_long("labels", columns.array("labels", np.int32), len(ids_T))
    sampled_T = labels_T != IGNORED
    if (labels_T[sampled_T] != ids_T[sampled_T]).any():
        raise ValueError("labels has a token that is not that of input_ids")
    return _made(
        columns, ids_T, sampled_T, columns.optional("logprobs", np.float32), None, "reward"
    )


_LAYOUTS: Mapping[str, Callable[[_Columns], ForeignRow]] = {
    "token_ids": _chain,
    "completion_ids": _prime_rl,
    "response_ids": _verl,
    "input_ids": _trl,
}
"""Layouts by the column that shows them."""


def _made(
    columns: _Columns,
    ids_T: Int32s,
    sampled_T: NDArray[np.bool_],
    logprobs_T: Float32s | None,
    temperatures_T: Float32s | None,
    reward: str,
) -> ForeignRow:
    if temperatures_T is None:
        temperatures_T = np.ones(len(ids_T), np.float32)
    versions_T = columns.optional("versions", np.int32)
    several = None
    if versions_T is None:
        low = columns.number("version_min")
        high = columns.number("version_max")
        version = int(low) if low is not None and low == high else -1
        if low is not None and high is not None and low != high:
            several = int(low), int(high)
        versions_T = np.full(len(ids_T), version, np.int32)
    named = {name: str(columns.row[name]) for name in _TEXTS if columns.has(name)}
    return ForeignRow(
        ids_T,
        sampled_T,
        logprobs_T,
        temperatures_T,
        versions_T,
        columns.number(reward),
        several,
        named,
        _begins(columns),
        columns.row.get("conversation") or {},
    )


def _begins(columns: _Columns) -> tuple[int, ...]:
    begins = columns.optional("begins", np.int32)
    return (0,) if begins is None else tuple(begins.tolist())


def _check(row: ForeignRow) -> None:
    size = len(row.ids_T)
    if not size:
        raise ValueError("it has no tokens")
    if row.ids_T.min() < 0:
        raise ValueError("a token id is negative")
    columns = {
        "mask": row.sampled_T,
        "logprobs": row.logprobs_T,
        "temperatures": row.temperatures_T,
        "versions": row.versions_T,
    }
    for name, values in columns.items():
        if values is not None:
            _as_long(name, values, size)


def _as_long(name: str, values: NDArray[Any], size: int) -> NDArray[Any]:
    if len(values) != size:
        raise ValueError(f"{name} has {len(values)} entries for {size} tokens")
    return values
