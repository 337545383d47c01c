"""Line of one event of a session, for logs and pipes. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.text import Text

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.show.tree_view import Spell
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.tokens import unpack

_MOST_CHARACTERS = 60
_WIDEST_NAME = len("SessionFinalized")


def event_line(item: Received, accepted: bool, spell: Spell | None) -> Text:
    """Return time, offset, name and the gist of an event; without `spell` tokens are ids."""
    written = datetime.fromtimestamp(item.timestamp_ms / 1000, UTC)
    name = type(item.record).__name__
    line = Text.assemble(
        (f"{written:%H:%M:%S}.{item.timestamp_ms % 1000:03}  ", "dim"),
        (f"{item.partition}:{item.offset:<6}  ", "cyan"),
        (f"{name:<{_WIDEST_NAME}}  ", "bold"),
        _gist(item.record, spell),
    )
    if not accepted:
        line.append("  (ignored: the fold did not accept it)", style="red")
    return line


def _gist(record: Record, spell: Spell | None) -> str:
    turn = f"turn {turn_id}" if (turn_id := getattr(record, "turn_id", None)) else ""
    match record:
        case r.SessionOpened():
            about = f", task {record.task_id}" if record.task_id else ""
            if record.fork is not None:
                about += f", forked from {record.fork.origin.session_id}"
            return f"{record.session_id}, policy {record.policy}, {record.purpose}{about}"
        case r.TurnStarted():
            return (
                f"{turn}: {_counted(record.prompt_length, 'prompt token')}, "
                f"matched by {record.match_rule}"
            )
        case r.TurnDispatched():
            return f"{turn}: to {record.worker}, dispatch {record.dispatch} ({record.reason})"
        case r.TurnProgressed():
            return f"{turn}: {_tokens(record.token_ids, spell)}"
        case r.TurnInterrupted():
            return f"{turn}: {record.reason}, {_tokens(record.token_ids, spell)}"
        case r.TurnCompleted():
            return f"{turn}: {record.finish_reason}, {_tokens(record.token_ids, spell)}"
        case r.TurnFailed():
            return f"{turn}: {record.status} {record.reason} {_cut(record.detail)}".rstrip()
        case r.RewardAssigned():
            return f"{record.reward.name} {record.reward.value:g}"
        case r.SessionClosed():
            reason = next(reversed(record.reason.splitlines()), "")  # of a traceback, the error
            return f"{record.status}, {record.cause}{f': {_cut(reason)}' if reason else ''}"
        case r.CommandRefused():
            return f"{record.status} {record.reason} {_cut(record.detail)}".rstrip()
    reason = getattr(record, "reason", "")
    return f"{turn}: {reason}" if turn and reason else turn or reason


def _tokens(ids: bytes, spell: Spell | None) -> str:
    tokens: Sequence[int] = unpack(ids)
    if not len(tokens):
        return "no tokens"
    text = repr(spell(tokens)) if spell else " ".join(map(str, tokens))
    return f"{_counted(len(tokens), 'token')} {_cut(text)}"


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
