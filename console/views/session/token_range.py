"""A range of a session's tokens, as it is sent: an array for each fact, never an object per token.

It is the JSON twin for `tokens.json?from=&to=`. Codes are row numbers on the session's page:
reasons, workers, nodes. Pure.
"""

from dataclasses import dataclass

import numpy as np

from seamlessflow.console.views.session.reason import place_of
from seamlessflow.console.views.session.reasons import ExplainedTokens
from seamlessflow.console.views.session.texts import (
    MessageRow,
    TokenTexts,
    message_rows,
    token_texts,
)
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.recorded.show.session_view import Spell
from seamlessflow.schemas.arrays import Bools, Float32s, Int32s, Int64s

MOST_TOKENS = 65_536
"""Most tokens in a range."""


class RangeRefused(SeamlessFlowError):
    """A token range that a session does not have."""

    lasting = True

    def __init__(self, begin: int, end: int, size: int) -> None:
        self.begin = begin
        self.end = end
        self.size = size
        super().__init__(
            f"from={begin}&to={end} is no range of the session's {size} tokens: 0 <= from <= to "
            f"<= {size}, and at most {MOST_TOKENS} tokens"
        )


@dataclass(frozen=True, slots=True)
class EventColumns:
    """Events that brought a range's tokens, in token order."""

    begins: Int32s
    """First token that each brought in the range, counted in the session."""
    places: tuple[str, ...]
    """Each event's `topic:partition:offset`; empty where no event brought the tokens."""


@dataclass(frozen=True, slots=True)
class TurnMessages:
    """A turn's messages: those that its prompt adds, and its answer."""

    turn: str
    messages: tuple[MessageRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRange:
    """Facts about the tokens from `begin` to before `end`, counted in the session."""

    session: str
    begin: int
    end: int
    size: int
    """Token count of the whole session."""
    ids: Int32s
    texts: TokenTexts
    logprobs: Float32s
    """Log-prob at the engine; null if none was reported."""
    advantages: Float32s
    """Advantage in the step that trained the token; null if none is kept."""
    temperatures: Float32s
    versions: Int32s
    """Policy version; -1: one of several, see `inexact`; -2: no policy in this run sampled it."""
    inexact: tuple[tuple[int, int, int], ...]
    """First token, lowest and highest version of each span whose exact version is not known."""
    workers: Int32s
    """Number in the page's `workers`; -1: none."""
    nodes: Int32s
    """Number of the node in the tree."""
    mask: Bools
    """True for tokens that the trajectory's mask lets be trained."""
    reasons: Int32s
    """Number in the page's `reasons`."""
    events: EventColumns
    messages: tuple[TurnMessages, ...]
    """Messages of turns whose answer or prompt begins in the range."""


def token_range(
    tokens: ExplainedTokens, begin: int, end: int, spell: Spell | None = None
) -> TokenRange:
    """Return a range of a session's tokens; without `spell` ids stand for texts.

    Raises `RangeRefused`.
    """
    columns = tokens.columns
    size = len(columns)
    if not 0 <= begin <= end <= size or end - begin > MOST_TOKENS:
        raise RangeRefused(begin, end, size)
    part = slice(begin, end)
    spans = columns.trajectory.spans
    return TokenRange(
        session=columns.trajectory.session_id,
        begin=begin,
        end=end,
        size=size,
        ids=_sent(columns.ids_T[part]),
        texts=token_texts(columns.ids_T[part], columns.nodes_T[part], spell),
        logprobs=columns.logprobs_T[part],
        advantages=tokens.advantages_T[part],
        temperatures=tokens.temperatures_T[part],
        versions=columns.versions_T[part],
        inexact=tuple(
            (span.start, span.version_min, span.version_max)
            for span in spans
            if begin <= span.start < end and span.version_min != span.version_max
        ),
        workers=columns.workers_T[part],
        nodes=columns.nodes_T[part],
        mask=columns.mask_T[part],
        reasons=tokens.reasons_T[part],
        events=_events(tokens, begin, end),
        messages=_messages(tokens, begin, end),
    )


def session_messages(tokens: ExplainedTokens) -> tuple[TurnMessages, ...]:
    """Return the messages of all turns in a session, in tree order."""
    return _messages(tokens, 0, len(tokens.columns))


def _sent(ids_N: Int32s) -> Int32s:
    """Return ids that orjson can read: a separate array, not a view of a record's bytes."""
    return np.ascontiguousarray(ids_N, np.int32)


def _events(tokens: ExplainedTokens, begin: int, end: int) -> EventColumns:
    sources_N = tokens.columns.sources_T[begin:end]
    changes: Int64s = np.flatnonzero(np.diff(sources_N, prepend=-2))
    sources = sources_N[changes].tolist()
    places = tuple(
        place_of(tokens.columns.sources[source] if source >= 0 else None) for source in sources
    )
    return EventColumns((changes + begin).astype(np.int32), places)


def _messages(tokens: ExplainedTokens, begin: int, end: int) -> tuple[TurnMessages, ...]:
    """Return the messages of the turns that begin in the range, in tree order."""
    if tokens.folded is None:
        return ()
    turns = tokens.folded.session.turns
    names = dict.fromkeys(
        node.turn_id
        for node in tokens.columns.nodes
        if begin <= node.start < max(end, begin + 1) and node.turn_id in turns
    )
    return tuple(TurnMessages(name, message_rows(turns[name])) for name in names)
