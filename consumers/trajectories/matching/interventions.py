"""Interventions: answers of the assistant in a request that no policy sampled in the session. Pure.

A person, an expert or another program spoke for the policy. An answer that an earlier request had
is none any more, however often later requests repeat it. Called when a turn starts; what was
decided stands on `TurnStarted`. Plain prompts have no messages, and so no interventions.
"""

from collections.abc import Sequence

from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness, message_key
from seamlessflow.consumers.trajectories.sessions.session import Session, TurnState

SINCE_RULES = 2
"""Version of the fold's rules from which on interventions are known."""
_OF_THE_ASSISTANT = b'"role":"assistant"'


def intervenes(session: Session, new_messages: Sequence[bytes], strictness: Strictness) -> bool:
    """Return whether an answer among a request's new messages is an intervention.

    `new_messages`: those behind the turn that the request continues, or all of them, each in
    canonical JSON. Answers are compared with sampled ones by `strictness`.
    """
    answers = {message for message in new_messages if _OF_THE_ASSISTANT in message}
    if not answers or session.opened.fold_version < SINCE_RULES:
        return False
    turns = session.turns.values()
    answers -= {message for turn in turns for message in turn.started.new_messages}
    if not answers:
        return False
    completed = (turn.message for turn in turns if turn.state is TurnState.COMPLETED)
    sampled = {message_key(message, strictness) for message in completed}
    return any(message_key(answer, strictness) not in sampled for answer in answers)
