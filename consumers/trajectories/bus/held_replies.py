"""Parts of a streamed turn that were read together go to its gateway as one. Pure.

Nobody waits for more: what is held is released before the manager reads on. So with tokens that
come one at a time nothing changes, and under load a gateway reads a record where there were many.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import orjson

from infra.kafka.client import Headers
from schemas.records import Record, ReplyDelta, ReplyFinished

_ORDER = ("reasoning_content", "content", "tool_calls")
"""How gateways write the members of one delta; parts that came otherwise stay apart."""


class Addressed(NamedTuple):
    """A reply, the partition of `replies` it goes to, and its headers."""

    partition: int
    reply: Record
    headers: Headers


class HeldReplies:
    """Deltas by gateway and turn; all other replies of a turn push them out."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], list[Addressed]] = {}

    def add(self, addressed: Addressed) -> list[Addressed]:
        """Adds a reply; what is to be sent now, in this order."""
        reply: Any = addressed.reply
        name = reply.gateway, reply.turn_id
        if isinstance(reply, ReplyDelta):
            self._held.setdefault(name, []).append(addressed)
            return []
        return _joined([*self._held.pop(name, ()), addressed])

    def pass_through(self, addressed: Addressed) -> list[Addressed]:
        """What to send now so that a reply comes as it is, behind what is held of its turn."""
        reply: Any = addressed.reply
        held = self._held.pop((reply.gateway, reply.turn_id), ())
        return [*_joined(held), addressed]

    def release(self) -> list[Addressed]:
        """All that is held, which is held no longer."""
        held, self._held = self._held, {}
        return [one for together in held.values() for one in _joined(together)]


def _joined(replies: Sequence[Addressed]) -> list[Addressed]:
    """The replies with neighbours made one where the later goes on where the earlier ends."""
    if len(replies) < 2:
        return list(replies)  # most often: nothing is read for it
    runs: list[_Run] = []
    for one in replies:
        if not (runs and runs[-1].append(one)):
            runs.append(_Run(one))
    return [run.whole() for run in runs]


class _Run:
    """Replies that are one."""

    def __init__(self, first: Addressed) -> None:
        self._all = [first]
        self._members: dict[str, list[Any]] = {}
        reply: Any = first.reply
        self._open = isinstance(reply, ReplyDelta) and self._add(reply.delta)
        self._next_token = reply.token_offset + reply.token_count if self._open else 0

    def append(self, addressed: Addressed) -> bool:
        """Whether the reply goes on here."""
        reply = addressed.reply
        if not self._open or not isinstance(reply, ReplyDelta | ReplyFinished):
            return False
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
        """One reply for all."""
        if len(self._all) == 1:
            return self._all[0]
        replies: list[Any] = [one.reply for one in self._all]
        first, last = replies[0], replies[-1]
        told = {"token_offset": first.token_offset, "delta": self._delta()}
        if isinstance(last, ReplyDelta):
            told |= {
                "token_count": self._next_token - first.token_offset,
                "token_ids": _bytes([reply.token_ids for reply in replies]),
                "logprobs": _bytes([reply.logprobs for reply in replies]),
                "tensors": tuple(tensor for reply in replies for tensor in reply.tensors),
            }
        return self._all[-1]._replace(reply=replace(last, **told))

    def _add(self, delta: bytes | None) -> bool:
        """Whether the members of a delta are written behind those that are there."""
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
    """All together; none unless each has some."""
    return None if None in parts else b"".join(part for part in parts if part is not None)
