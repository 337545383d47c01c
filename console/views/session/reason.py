"""Reasons why tokens were trained or not: a closed set, and a session's table.

Each token on a page has the number of a row in that table. A row names the record on the log that
proves it, and the setting that would change it. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas.arrays import Int32s
from seamlessflow.trainer.metrics.unlearned import cause_of


class TokenReason(StrEnum):
    """Kind of reason; the page has a colour and a mark for each."""

    TRAINED = "trained"
    PROMPT = "prompt"
    TOOL_RESULT = "tool_result"
    INTERVENTION = "intervention"
    FORKED = "forked"
    FOREIGN = "foreign"
    UNDER_WAY = "under_way"
    MASKED = "masked"
    SESSION_FAILED = "session_failed"
    GROUP_DROPPED = "group_dropped"
    GROUP_FILTERED = "group_filtered"
    STALE = "stale"
    LEFT_OUT = "left_out"
    NOT_IN_STEP = "not_in_step"
    LOST_STEP = "lost_step"
    UNKNOWN = "unknown"


MEANINGS: Mapping[TokenReason, str] = {
    TokenReason.TRAINED: "in the loss of an optimizer step",
    TokenReason.PROMPT: "part of a prompt: no policy sampled it",
    TokenReason.TOOL_RESULT: "a tool's result: no policy sampled it",
    TokenReason.INTERVENTION: "in a prompt in which others answered for the policy",
    TokenReason.FORKED: "copied from a recorded session, where it was sampled",
    TokenReason.FOREIGN: "sampled by another system",
    TokenReason.UNDER_WAY: "not decided yet: the session goes on",
    TokenReason.MASKED: "sampled, and masked by a rule",
    TokenReason.SESSION_FAILED: "its session did not count for the group",
    TokenReason.GROUP_DROPPED: "its group was dropped",
    TokenReason.GROUP_FILTERED: "a filter kept its group out of the loss",
    TokenReason.STALE: "too stale for the step",
    TokenReason.LEFT_OUT: "the step trained other sessions of the group",
    TokenReason.NOT_IN_STEP: "may be trained, and no step has trained it",
    TokenReason.LOST_STEP: "trained by a step whose weights were lost in a restart",
    TokenReason.UNKNOWN: "in a step's batch; what is kept does not say more",
}
"""Each kind's meaning, for a legend."""


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """A reason that some tokens in a session have."""

    kind: TokenReason
    words: str
    """A sentence for a reader, without a full stop."""
    rule: str = ""
    """Name of the mask, filter or cause; empty if the kind says all."""
    place: str = ""
    """Record on the log that proves it, as `topic:partition:offset`; empty if the log has none."""
    record: str = ""
    """That record's type."""
    setting: str = ""
    """Meaning and remedy, with the setting that would change it."""
    tokens: int = 0
    """Count of the session's tokens that have it."""


@dataclass(slots=True)
class ReasonTable:
    """Rows in the order in which they are met, each once. A row's number is its tokens' code."""

    _numbers: dict[ReasonRow, int] = field(default_factory=dict)

    def number(self, row: ReasonRow) -> int:
        """Return the number of a row, which is added if it is new."""
        return self._numbers.setdefault(row, len(self._numbers))

    def row(self, number: int) -> ReasonRow:
        """Return the row with this number."""
        return list(self._numbers)[number]

    def rows(self, reasons_T: Int32s) -> tuple[ReasonRow, ...]:
        """Return all rows, each with its token count."""
        counts = np.bincount(reasons_T, minlength=len(self._numbers)).tolist()
        return tuple(
            replace(row, tokens=count) for row, count in zip(self._numbers, counts, strict=True)
        )


def reason_row(
    kind: TokenReason, words: str = "", item: Received | None = None, rule: str = ""
) -> ReasonRow:
    """Return a row that the record `item` proves; without `words` it says what its kind means."""
    return ReasonRow(
        kind,
        words or MEANINGS[kind],
        rule,
        place_of(item),
        "" if item is None else type(item.record).__name__,
        cause_of(rule),
    )


def place_of(item: Received | None) -> str:
    """Return a record's place on the log, as links name it; empty without a record."""
    return "" if item is None else f"{item.topic}:{item.partition}:{item.offset}"
