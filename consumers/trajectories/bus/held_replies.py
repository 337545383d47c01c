"""A turn's replies from one batch of events, merged into one record. Pure.

The manager releases them before it reads the next batch, so merging delays no reply. Tokens that
come one at a time go out one at a time. Under load a gateway reads one record instead of many.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import orjson

from seamlessflow.schemas.records import Record, ReplyDelta, ReplyFinished
from seamlessflow.schemas.topics import Headers

_ORDER = ("reasoning_content", "content", "tool_calls")
"""Order in which gateways write a delta's members; deltas in another order stay apart."""


class Addressed(NamedTuple):
    """A reply, the partition of `replies` it goes to, and its headers."""

    partition: int
    reply: Record
    headers: Headers


class HeldReplies:
    """Deltas by gateway and turn, held until `release` or another reply of the turn."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], list[Addressed]] = {}

    def add(self, addressed: Addressed) -> list[Addressed]:
        """Add a reply. Return the replies to send now, in this order."""
        reply: Any = addressed.reply
        name = reply.gateway, reply.turn_id
        if isinstance(reply, ReplyDelta):
            self._held.setdefault(name, []).append(addressed)
            return []
        return _joined([*self._held.pop(name, ()), addressed])

    def pass_through(self, addressed: Addressed) -> list[Addressed]:
        """Return the replies to send now: the turn's held replies, then this one unmerged."""
        reply: Any = addressed.reply
        held = self._held.pop((reply.gateway, reply.turn_id), ())
        return [*_joined(held), addressed]

    def release(self) -> list[Addressed]:
        """Return all held replies, merged, and hold none."""
        held = self._held
        self._held = {}
        return [addressed for together in held.values() for addressed in _joined(together)]


def _joined(replies: Sequence[Addressed]) -> list[Addressed]:
    """Merge neighbours where the later reply begins at the token after the earlier one."""
    if len(replies) < 2:
        return list(replies)  # the usual case: no JSON to read
    runs: list[_Run] = []
    for reply in replies:
        if not (runs and runs[-1].append(reply)):
            runs.append(_Run(reply))
    return [run.whole() for run in runs]


class _Run:
    """Replies that can be sent as one."""

    def __init__(self, first: Addressed) -> None:
        self._all = [first]
        self._members: dict[str, list[Any]] = {}
        reply: Any = first.reply
        self._open = isinstance(reply, ReplyDelta) and self._add(reply.delta)
        self._next_token = reply.token_offset + reply.token_count if self._open else 0

    def append(self, addressed: Addressed) -> bool:
        """Append the reply and return True, or return False if it must stay apart."""
        reply = addressed.reply
        if not self._open or not isinstance(reply, ReplyDelta | ReplyFinished):
            return False
        # A finish without a message reports a failure, and has no tokens to continue.
        failed = isinstance(reply, ReplyFinished) and reply.message is None
        if failed or reply.token_offset != self._next_token or not self._add(reply.delta):
            return False
        if isinstance(reply, ReplyDelta):
            self._next_token += reply.token_count
        else:
            self._open = False
        self._all.append(addressed)
        return True

    def whole(self) -> Addressed:
        """Return one reply with the content of all merged replies."""
        if len(self._all) == 1:
            return self._all[0]
        replies: list[Any] = [addressed.reply for addressed in self._all]
        first = replies[0]
        last = replies[-1]
        merged = {"token_offset": first.token_offset, "delta": self._delta()}
        if isinstance(last, ReplyDelta):
            merged |= {
                "token_count": self._next_token - first.token_offset,
                "token_ids": _bytes([reply.token_ids for reply in replies]),
                "logprobs": _bytes([reply.logprobs for reply in replies]),
                "tensors": tuple(tensor for reply in replies for tensor in reply.tensors),
            }
        return self._all[-1]._replace(reply=replace(last, **merged))

    def _add(self, delta: bytes | None) -> bool:
        """Add a delta's members; return False if the order of members forbids it."""
        added: dict[str, Any] = orjson.loads(delta or b"{}")
        begun = _ORDER.index(next(reversed(self._members))) if self._members else 0
        if not all(name in _ORDER[begun:] for name in added):
            return False
        for name in sorted(added, key=_ORDER.index):
            self._members.setdefault(name, []).append(added[name])
        return True

    def _delta(self) -> bytes | None:
        whole: dict[str, Any] = {
            name: list(chain.from_iterable(parts)) if name == "tool_calls" else "".join(parts)
            for name, parts in self._members.items()
        }
        return orjson.dumps(whole, option=orjson.OPT_SORT_KEYS) if whole else None


def _bytes(parts: Sequence[bytes | None]) -> bytes | None:
    """Return the parts joined, or None if one of them is None."""
    return None if None in parts else b"".join(part for part in parts if part is not None)
