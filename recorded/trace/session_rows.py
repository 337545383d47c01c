"""Rows within a session: opened, its turns, rewards, closed, finalized. Pure."""

from collections.abc import Sequence

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.trace.row import Row, first, of_kind, row
from seamlessflow.recorded.trace.turn_rows import turn_rows
from seamlessflow.schemas import records as r


def session_rows(records: Sequence[Received], control: Sequence[Received]) -> list[Row]:
    """Return the rows of a session, in the order in which they began."""
    blocks = turn_rows(records, control)
    opened = first(records, r.SessionOpened)
    if opened is not None:
        blocks.append([row("opened", first(records, r.OpenSession), opened, depth=1)])
    blocks += [
        [_rewarded(event, item, _command(records, r.AssignReward, event.command_id))]
        for event, item in of_kind(records, r.RewardAssigned)
    ]
    blocks += [
        [_closed(event, item, _command(records, r.CloseSession, event.command_id))]
        for event, item in of_kind(records, r.SessionClosed)
    ]
    blocks += [
        [row("finalized", item, detail=event.reason, depth=1)]
        for event, item in of_kind(records, r.SessionFinalized)
    ]
    blocks.sort(key=lambda block: block[0].start_ms)
    return [entry for block in blocks for entry in block]


def _rewarded(event: r.RewardAssigned, item: Received, command: Received | None) -> Row:
    reward = event.reward
    about = f" of {reward.turn_id}" if reward.turn_id else ""
    final = "" if event.final else ", not final"
    detail = f"{reward.name}{about} {reward.value:g}{final}"
    return row("rewarded", command, item, detail=detail, depth=1)


def _closed(event: r.SessionClosed, item: Received, command: Received | None) -> Row:
    parts = [event.status]
    if event.cause != "policy":
        parts.append(f"cause {event.cause}")
    if event.limit:
        parts.append(f"ended at {event.limit}")
    if event.reason:
        parts.append(event.reason.splitlines()[-1])
    return row("closed", command, item, detail=", ".join(parts), depth=1)


def _command(
    records: Sequence[Received],
    kind: type[r.AssignReward] | type[r.CloseSession],
    command_id: str | None,
) -> Received | None:
    return next(
        (item for command, item in of_kind(records, kind) if command.command_id == command_id),
        None,
    )
