"""Counts of turns that other rules would have matched differently. Pure.

Each turn is matched against the session as it was recorded. So a rule that would have matched has
no effect on later turns. Another strictness is tried on message keys, without rendering. A turn
that would be found again counts as extended, unless its bridge was refused when it was recorded.
Any other turn counts as rendered anew, without known shared tokens. Another renderer renders and
bridges as the manager does, by the recorded strictness.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from seamlessflow.consumers.trajectories.matching.chat import match
from seamlessflow.consumers.trajectories.matching.match import PromptRenderer, asked_before
from seamlessflow.consumers.trajectories.matching.recorded import MatchSettings, recorded_settings
from seamlessflow.consumers.trajectories.sessions.message_keys import (
    Strictness,
    chained,
    message_key,
    shape_key,
)
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.rendering.settings import RendererError
from seamlessflow.schemas.records import Record, TurnStarted
from seamlessflow.schemas.tokens import TOKEN_BYTES

NOT_RECORDED = "not recorded"
"""Stands for a turn's rule if its release recorded less than a trial needs."""
REFUSED = "refused"
"""Stands for a turn's rule if the other renderer cannot render its messages."""
RulePair = tuple[str, str]
"""Recorded rule, and the one that would have matched."""
TrialRenderer = Callable[[TurnStarted, MatchSettings], PromptRenderer]
"""Makes the renderer to try for a turn, from what matched the turn. Raises `RendererError`."""


@dataclass(slots=True)
class MatchCounts:
    """By pair of rules: turns, and their prompts' tokens that the tree had before."""

    turns: Counter[RulePair] = field(default_factory=Counter)
    shared: Counter[RulePair] = field(default_factory=Counter)
    """Recorded shared tokens."""
    would_share: Counter[RulePair] = field(default_factory=Counter)

    def count(self, pair: RulePair, shared: int, would_share: int) -> None:
        """Count a turn."""
        self.turns[pair] += 1
        self.shared[pair] += shared
        self.would_share[pair] += would_share

    def add(self, other: "MatchCounts") -> None:
        """Add other turns' counts."""
        self.turns.update(other.turns)
        self.shared.update(other.shared)
        self.would_share.update(other.would_share)

    def rows(self) -> Iterator[tuple[str, str, int, int, int]]:
        """Yield both rules, the turn count, and shared tokens as recorded and as they would be."""
        for pair in sorted(self.turns):
            yield *pair, self.turns[pair], self.shared[pair], self.would_share[pair]


class MatchTrial:
    """Trial over one partition: for `Refold`, it rewrites the events and counts.

    It rewrites only histories' keys. So the folded sessions know the messages by the strictness
    that is tried.
    """

    def __init__(
        self, strictness: Strictness | None = None, renderer: TrialRenderer | None = None
    ) -> None:
        self._strictness = strictness
        self._renderer = renderer
        self._recorded: dict[str, Strictness] = {}
        """Latest recorded strictness by policy."""
        self._known: dict[str, dict[str, Sequence[str]]] = {}
        """By ids of open session and turn: the turns that end the longest known beginning."""
        self.counts: dict[str, MatchCounts] = {}
        """Counts by id of the open session; `take` ends them."""

    def strictness(self, policy: str) -> Strictness:
        """Return how strictly the messages that a policy sampled are compared."""
        return self._strictness or self._recorded.get(policy, "exact")

    def take(self, session_id: str) -> MatchCounts:
        """Return an ended session's counts, and forget them."""
        self._known.pop(session_id, None)
        return self.counts.pop(session_id, MatchCounts())

    def rewrite(self, session: Session | None, event: Record) -> Iterable[Record]:
        """Count a turn that starts; return its event with the history key of the trial."""
        if not isinstance(event, TurnStarted) or session is None or _refused(session, event):
            return (event,)
        shared = event.prompt_length - len(event.suffix_ids) // TOKEN_BYTES
        counts = self.counts.setdefault(session.session_id, MatchCounts())
        settings = recorded_settings(session, event)
        # A fork's copied turns have the keys of the recorded shape, not of the trial's.
        unknown = settings is None or session.opened.fork is not None
        if settings is None or unknown or event.raw:
            would = NOT_RECORDED if unknown else event.match_rule
            counts.count((event.match_rule, would), shared, shared)
            return (event,)
        self._recorded[event.policy] = settings.strictness  # type: ignore[assignment]
        shape = shape_key(event.policy, settings.to_json(), event.tools, event.template_args)
        key, turns = self._walk(session, event, shape)
        rule, would_share = _by_keys(session, event, key, turns, shared)
        if self._renderer is not None:
            rule, would_share = self._rendered(session, event, shape, settings, self._renderer)
        counts.count((event.match_rule, rule), shared, would_share)
        self._known.setdefault(session.session_id, {})[event.turn_id] = turns
        return (replace(event, history_key=key),)

    def _walk(
        self, session: Session, event: TurnStarted, shape: bytes
    ) -> tuple[bytes, Sequence[str]]:
        """Return the whole history's key, and the turns that end its longest beginning."""
        strictness = self.strictness(event.policy)
        key = shape
        turns: Sequence[str] = ()
        parent = session.turns.get(event.parent_turn or "")
        if parent is not None:
            # Earlier messages are recorded with the turn that was extended.
            turn_id = parent.started.turn_id
            key = parent.started.history_key
            turns = self._known.get(session.session_id, {}).get(turn_id, ())
            differs = strictness in event.answer_differs
            sampled = message_key(parent.message, strictness)
            key = chained(key, event.turn_id.encode() if differs else sampled)
            turns = session.ends.get(key, turns)
        for message in event.new_messages:
            key = chained(key, message_key(message, strictness))
            turns = session.ends.get(key, turns)
        return key, tuple(turns)

    def _rendered(
        self,
        session: Session,
        event: TurnStarted,
        shape: bytes,
        settings: MatchSettings,
        renderer: TrialRenderer,
    ) -> tuple[str, int]:
        """Return the other renderer's rule, and the tokens that the turn would share."""
        parent = session.turns.get(event.parent_turn or "")
        before = [] if parent is None else session.history(parent)
        messages = [*before, *event.new_messages]
        strictness = self.strictness(event.policy)
        try:
            tried = renderer(event, settings)
            named = event.previous_turn
            matched = match(session, messages, event.tools, shape, tried, strictness, named)
        except (RendererError, ValueError):
            return REFUSED, 0
        return matched.rule, (len(matched.prompt_ids) - len(matched.suffix_ids)) // TOKEN_BYTES


def _refused(session: Session, event: TurnStarted) -> bool:
    """Return True if the fold will refuse the event."""
    late = session.closed is not None or event.turn_id in session.turns
    return late or not session.tree.holds(event.parent_node, event.parent_end)


def _by_keys(
    session: Session, event: TurnStarted, key: bytes, turns: Sequence[str], shared: int
) -> tuple[str, int]:
    """Return the rule by message keys only, and the tokens that the turn would share."""
    if turns and event.match_detail != "bridge_refused":
        if event.parent_turn in turns:
            return "extend", shared
        turn = session.turns[turns[-1]]
        return "extend", turn.started.prompt_length + session.tree.nodes[turn.node].length
    if event.match_rule == "extend":
        return "render", 0
    if event.match_rule == "same" and not asked_before(session, key):
        return "render", shared
    if event.match_rule == "render" and not event.suffix_ids and asked_before(session, key):
        return "same", shared
    return event.match_rule, shared
