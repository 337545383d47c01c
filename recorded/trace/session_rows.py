"""Rows within a session: opened, its turns, rewards, closed, finalized. Pure.

A turn's rows say how it was matched, dispatched, interrupted, continued and answered.
"""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from seamlessflow.consumers.trajectories.sessions.message_keys import any_strictness
from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.trace.row import Row, first, of_kind, row
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import VersionSpan
from seamlessflow.schemas.tokens import TOKEN_BYTES, of_exact_version
from seamlessflow.schemas.topics import SESSIONS

_OUTPUT = (r.TurnProgressed, r.TurnInterrupted, r.TurnCompleted)

_LEFT_WORKER = (r.TurnInterrupted, r.TurnCompleted, r.TurnFailed)
_RESUMED = r.GenerationResumed
_ENDED = (r.TurnCompleted, r.TurnFailed, r.TurnCancelled)


def session_rows(records: Sequence[Received], control: Sequence[Received]) -> list[Row]:
    """Return a session's rows, in the order in which they began."""
    blocks = _turn_rows(records, control)
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


def _turn_rows(records: Sequence[Received], control: Sequence[Received]) -> list[list[Row]]:
    """Return the rows for each turn and for calls without a turn; `control` has weight updates."""
    accepted = _accepted_output(records)
    begun = [
        _turn(number, started, item, records, control, accepted)
        for number, (started, item) in enumerate(of_kind(records, r.TurnStarted), 1)
    ]
    taken = {started.command_id for started, _ in of_kind(records, r.TurnStarted)}
    taken |= {joined.command_id for joined, _ in of_kind(records, r.TurnJoined)}
    played = list(of_kind(records, r.TurnPlayedBack))
    taken |= {event.command_id for event, _ in played}
    asked = (pair for pair in of_kind(records, r.RequestTurn) if pair[0].command_id not in taken)
    return [
        *([_played_back(event, item, records)] for event, item in played),
        *begun,
        *([_not_begun(command, item, records)] for command, item in asked),
    ]


def _turn(
    number: int,
    started: r.TurnStarted,
    item: Received,
    records: Sequence[Received],
    control: Sequence[Received],
    accepted: AbstractSet[int],
) -> list[Row]:
    items = [
        record for record in records if getattr(record.record, "turn_id", None) == started.turn_id
    ]
    asked = next(
        (
            at
            for event, at in of_kind(items, r.RequestTurn)
            if event.command_id == started.command_id
        ),
        None,
    )
    ended = first(items, *_ENDED)
    answered = first(items, r.ReplyFinished)
    detail = f"{_ending(ended)}, {started.turn_id}"
    whole = row(
        f"turn {number}",
        asked,
        item,
        ended,
        answered,
        detail=detail,
        depth=1,
        under_way=ended is None,
    )
    matched = row(
        "matched",
        asked,
        item,
        detail=f"{started.match_rule}, prompt of {started.prompt_length} tokens",
        depth=2,
    )
    return [whole, matched, *_dispatches(items, control, accepted), *_after(items, ended, answered)]


def _ending(ended: Received | None) -> str:
    match ended.record if ended else None:
        case r.TurnCompleted(finish_reason=reason) as completed:
            verdict = completed.control
            return f"{reason} ({verdict} at {completed.control_at})" if verdict else reason
        case r.TurnFailed() as failed:
            return f"failed with {failed.status}: {failed.reason}"
        case r.TurnCancelled(reason=reason):
            return f"cancelled: {reason}"
    return "under way"


def _dispatches(
    items: Sequence[Received], control: Sequence[Received], accepted: AbstractSet[int]
) -> list[Row]:
    dispatches = list(of_kind(items, r.TurnDispatched))
    ended = first(items, *_ENDED)
    rows: list[Row] = []
    for place, (dispatched, item) in enumerate(dispatches):
        of_it = [
            entry
            for entry in items
            if getattr(entry.record, "dispatch", None) == dispatched.dispatch
        ]
        following = dispatches[place + 1][1] if place + 1 < len(dispatches) else ended
        left = first(of_it, *_LEFT_WORKER) or following
        under_way = left is None
        reason = dispatched.reason
        again = "" if reason.startswith("first") else f", dispatched since {reason}"
        name = f"dispatch #{dispatched.dispatch} on {dispatched.worker}"
        detail = _sampled(of_it, accepted) + again
        prompt = first(of_it, r.GenerateTurn)
        rows.append(row(name, item, left, detail=detail, depth=2, under_way=under_way))
        if prompt is not None:
            rows.append(row("prompt sent", prompt, depth=3))
        if (progress := first(of_it, r.TurnProgressed)) is not None:
            rows.append(row("first tokens", progress, depth=3))
        rows += _updates(control, dispatched, item, left)
    return rows


def _sampled(of_it: Iterable[Received], accepted: AbstractSet[int]) -> str:
    """Return a dispatch's tokens that count, their versions, and why it ended."""
    parts = []
    tokens = 0
    spans = list[VersionSpan]()
    for item in of_it:
        record = item.record
        if isinstance(record, _OUTPUT) and item.offset in accepted:
            tokens += len(record.token_ids) // TOKEN_BYTES
            spans += record.spans
        if isinstance(record, r.TurnInterrupted):
            parts.append(f"interrupted: {record.reason}")
        if isinstance(record, r.TurnFailed):
            parts.append(f"failed: {record.reason}")
    parts.insert(0, f"{tokens} tokens")
    if spans:
        versions = dict.fromkeys(
            str(span.version_min)
            if of_exact_version(span)
            else f"{span.version_min}-{span.version_max}"
            for span in spans
        )
        parts.insert(1, f"version {', '.join(versions)}")
    return ", ".join(parts)


def _updates(
    control: Sequence[Received],
    dispatched: r.TurnDispatched,
    since: Received,
    left: Received | None,
) -> list[Row]:
    """Return the worker's weight updates while it sampled this dispatch."""
    items = [
        item
        for item in control
        if getattr(item.record, "worker", None) == dispatched.worker
        and getattr(item.record, "incarnation", None) == dispatched.incarnation
        and item.timestamp_ms >= since.timestamp_ms
    ]
    rows = []
    for paused, item in of_kind(items, r.GenerationPaused):
        if left is not None and item.timestamp_ms > left.timestamp_ms:
            break
        behind = [entry for entry in items if entry.offset > item.offset]
        resumed = first(behind, r.GenerationResumed)
        record = resumed.record if resumed else None
        after = f", on with version {record.version}" if isinstance(record, _RESUMED) else ""
        detail = paused.reason + after
        rows.append(row("paused", item, resumed, detail=detail, depth=3, under_way=resumed is None))
    return rows


def _after(
    items: Sequence[Received], ended: Received | None, answered: Received | None
) -> list[Row]:
    rows = [row("a retry joined", item, depth=2) for _, item in of_kind(items, r.TurnJoined)]
    if answered is not None:
        reply = answered.record
        detail = f"status {reply.status}" if isinstance(reply, r.ReplyFinished) else ""
        rows.append(row("answered", ended, answered, detail=detail, depth=2))
    rows += [
        row("not delivered", item, detail=left.reason, depth=2)
        for left, item in of_kind(items, r.TurnUndelivered)
    ]
    return rows


def _played_back(played: r.TurnPlayedBack, item: Received, records: Sequence[Received]) -> Row:
    asks = of_kind(records, r.RequestTurn)
    asked = next((at for event, at in asks if event.command_id == played.command_id), None)
    ends = of_kind(records, r.ReplyFinished)
    answered = next((at for event, at in ends if event.turn_id == played.turn_id), None)
    return row("played back", asked, item, answered, detail=played.turn_id, depth=1)


def _not_begun(command: r.RequestTurn, item: Received, records: Sequence[Received]) -> Row:
    refused = next(
        (
            at
            for event, at in of_kind(records, r.CommandRefused)
            if event.command_id == command.command_id
        ),
        None,
    )
    record = refused.record if refused else None
    detail = "began no turn"
    if isinstance(record, r.CommandRefused):
        detail = f"refused with {record.status}: {record.reason}"
    return row("call", item, refused, detail=f"{detail}, {command.turn_id}", depth=1)


def _accepted_output(records: Iterable[Received]) -> frozenset[int]:
    """Return the offsets on `sessions` of the output that the manager accepted.

    `records`: one session's, with its partition's claims. If retention removed the session's
    beginning, nothing can be folded, and all its output is returned. Raises `NewerRelease`.
    """
    # Producers have different clocks, so records ordered by time may be in another order.
    events = sorted(
        (item for item in records if item.topic == SESSIONS.name), key=lambda item: item.offset
    )
    if any(isinstance(item.record, r.SessionOpened) for item in events):
        return frozenset(_folded(events))
    return frozenset(item.offset for item in events if isinstance(item.record, _OUTPUT))


def _folded(events: Iterable[Received]) -> Iterator[int]:
    log: LoggedPartition | None = None
    for item in events:
        log = log or LoggedPartition(item.partition)
        folded = log.apply(item.record, item.offset, any_strictness)
        if folded.accepted and isinstance(item.record, _OUTPUT):
            yield item.offset
