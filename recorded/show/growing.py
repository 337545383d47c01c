"""Displays for a session that grows: a tree on a terminal, else lines or blocks with its events."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from seamlessflow.consumers.trajectories.sessions.fold import Folded
from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.show.observed import ObservedSession
from seamlessflow.recorded.show.record_view import records_view
from seamlessflow.recorded.show.session_view import Spell, session_view
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.tokens import unpack

SpellOf = Callable[[ObservedSession], Spell | None]
"""Function that spells the session's tokens; None if its tokenizer is not here."""
_REFRESH_S = 0.5
_ROWS_ELSEWHERE = 2
"""Terminal rows that a drawing leaves free, so that it does not scroll."""
_MOST_CHARACTERS = 60
_WIDEST_NAME = len("SessionFinalized")


class GrowingLines:
    """Display for logs and pipes: a line for each event, or all fields of each record."""

    def __init__(self, console: Console, spell_of: SpellOf, records: bool = False) -> None:
        self._console = console
        self._spell_of = spell_of
        self._records = records

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave all lines as they are."""

    def show(self, item: Received, folded: Folded | None, observed: ObservedSession) -> None:
        spell = self._spell_of(observed)
        if self._records:
            self._console.print(records_view([item], spell))
        else:
            accepted = folded is not None and folded.accepted
            self._console.print(event_line(item, accepted, spell), soft_wrap=True)

    def draw(self, observed: ObservedSession) -> None:
        """Draw nothing: each line was printed when its event came."""

    def waiting(self, what: str) -> None:
        self._console.print(f"... {what}", markup=False, highlight=False)


class GrowingTree:
    """Display for terminals: the tree, drawn at most twice a second; at the end it stays whole."""

    def __init__(self, console: Console, spell_of: SpellOf) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._spell_of = spell_of
        self._observed: ObservedSession | None = None
        self._drawn: tuple[float, int | None] = (0.0, None)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, traceback)
        if self._observed is not None:
            self._live.console.print(self._view(self._observed))

    def show(self, item: Received, folded: Folded | None, observed: ObservedSession) -> None:
        """Show nothing: the tree shows it when it is drawn next."""

    def draw(self, observed: ObservedSession) -> None:
        at_s, offset = self._drawn
        # Drawing spells the whole session; a session at rest needs none.
        if observed.session is None or observed.last == offset:
            return
        if time.monotonic() - at_s < _REFRESH_S:
            return
        self._observed = observed
        self._drawn = time.monotonic(), observed.last
        self._live.update(NewestLines(self._view(observed)), refresh=True)

    def waiting(self, what: str) -> None:
        self._live.update(Text(f"… {what}"), refresh=True)

    def _view(self, observed: ObservedSession) -> RenderableType:
        if observed.session is None:
            return Text()
        return Group(
            session_view(observed.session, self._spell_of(observed)), Text(observed.place, "dim")
        )


class NewestLines:
    """As many lines of a view as the terminal has room for: the first, and the newest."""

    def __init__(self, view: RenderableType) -> None:
        self._view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._view, options.update(height=None), pad=False)
        room = max(3, console.size.height - _ROWS_ELSEWHERE)
        hidden = len(lines) - room
        if hidden > 0:
            note = console.render_lines(Text(f"… {hidden + 1} lines above", "dim"), pad=False)
            lines = [lines[0], *note, *lines[hidden + 2 :]]
        for line in lines:
            yield from line
            yield Segment.line()


def event_line(item: Received, accepted: bool, spell: Spell | None) -> Text:
    """Return an event's time, offset, name and gist; without `spell` tokens are ids."""
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
            verdict = f" ({record.control} at {record.control_at})" if record.control else ""
            return f"{turn}: {record.finish_reason}{verdict}, {_tokens(record.token_ids, spell)}"
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
