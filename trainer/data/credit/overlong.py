"""Sessions that are too long: a punishment in their returns, and a mask for truncated ones.

DAPO, arXiv 2503.14476, section 3.4. Pure; called by `batch.py`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from seamlessflow.trainer.data.chains import Chain
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.sessions import ValidSession

OVERLONG = "overlong"
"""Reason why tokens are masked: a limit ended their session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlongRules:
    """The settings for long sessions, `trainer.overlong`."""

    length: int | None = None
    """Sampled tokens from which the whole punishment counts; None: no punishment."""
    cache: int | None = None
    """Tokens before `length` over which the punishment grows."""
    weight: float = 1.0
    masked: Collection[str] = ()
    """Limits; a session is masked if one of them ended it."""


def punishment(tokens: int, rules: OverlongRules) -> float:
    """Return a session's punishment for this many sampled tokens, between -weight and 0.

    DAPO's soft overlong punishment (arXiv 2503.14476, equation 13), times `weight`: 0 up to
    `length` - `cache` tokens, then linearly down to -1 at `length`, and -1 beyond.
    """
    if rules.length is None or rules.cache is None:
        return 0.0
    over = tokens - (rules.length - rules.cache)
    return -rules.weight * min(max(over / rules.cache, 0.0), 1.0)


def ruled(group: Group, rules: OverlongRules) -> Group:
    """Return the group with each session's punishment, and truncated sessions marked left out."""
    return replace(group, sessions=tuple(_ruled(session, rules) for session in group.sessions))


def kept(group: Group, chains: Sequence[Chain]) -> list[Chain]:
    """Return the chains whose sessions are not left out."""
    out = {session.source.session_id for session in group.members if session.left_out}
    return [chain for chain in chains if chain.session_id not in out]


def overlong_facts(groups: Sequence[Group]) -> dict[str, float]:
    """Return a batch's metrics: the share of sessions that the rules change, the mean punishment.

    Empty if the rules change no session.
    """
    sessions = [session for group in groups for session in group.sessions]
    ruled_ones = sum(session.left_out == OVERLONG or session.punishment < 0 for session in sessions)
    if not ruled_ones:
        return {}
    return {
        "overlong_share": ruled_ones / len(sessions),
        "overlong_penalty": -sum(session.punishment for session in sessions) / len(sessions),
    }


def _ruled(session: ValidSession, rules: OverlongRules) -> ValidSession:
    source = session.source
    masked = session.masked
    left_out = OVERLONG if source.limit in rules.masked else ""
    if left_out:
        masked = {**masked, OVERLONG: session.trained()}
    deduction = punishment(source.length.tokens, rules)
    return replace(session, punishment=deduction, left_out=left_out, masked=masked)
