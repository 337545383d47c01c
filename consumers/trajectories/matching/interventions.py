"""Interventions: answers of the assistant in a request that no policy sampled in the session. Pure.

A person, an expert or another program spoke for the policy. An answer that an earlier request had
is none any more, however often later requests repeat it. Called when a turn starts; what was
decided stands on `TurnStarted`. Plain prompts have no messages, and so no interventions.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from seamlessflow.consumers.trajectories.matching.match import Match
from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness, message_key
from seamlessflow.consumers.trajectories.sessions.session import Session, Turn, TurnState

SINCE_RULES = 2
"""Version of the fold's rules from which on interventions are known."""
_OF_THE_ASSISTANT = b'"role":"assistant"'


def intervenes(session: Session, hit: Match, strictness: Strictness) -> bool:
    """Return whether an answer among a match's new messages is an intervention.

    Turns of the history that the request goes on from stand in their places before these messages.
    Any other turn may have sampled such an answer, or had it in its request: an agent that changes
    its history repeats them. Answers are compared by `strictness`.
    """
    answers = _answers(hit.new_messages, strictness)
    if not answers or session.opened.fold_version < SINCE_RULES:
        return False
    before = {turn.started.turn_id for turn in _history(session, hit.parent_turn)}
    others = [turn for name, turn in session.turns.items() if name not in before]
    completed = (turn.message for turn in others if turn.state is TurnState.COMPLETED)
    sampled = Counter(message_key(message, strictness) for message in completed)
    repeated = Counter[bytes]()
    for turn in others:
        repeated |= _answers(turn.started.new_messages, strictness)
    return bool(answers - (sampled + repeated))


def _answers(messages: Sequence[bytes], strictness: Strictness) -> Counter[bytes]:
    """Return how often each answer is among messages, by its key."""
    answers = (message for message in messages if _OF_THE_ASSISTANT in message)
    return Counter(message_key(answer, strictness) for answer in answers)


def _history(session: Session, turn_id: str | None) -> Iterator[Turn]:
    """Yield a turn and those that it went on from, as far as none was rendered anew."""
    while turn_id is not None and (turn := session.turns.get(turn_id)) is not None:
        yield turn
        turn_id = turn.started.parent_turn
