"""Settings by which a turn was matched, as its `TurnStarted` records them. Pure.

The fold does not depend on them. Replays use them to count what other settings would have matched.
"""

from dataclasses import dataclass

import orjson

from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.schemas.records import PolicyWeights, TurnStarted


@dataclass(frozen=True, slots=True)
class MatchSettings:
    """A policy's settings that decide where its requests are matched."""

    renderer: bytes
    """Renderer settings as canonical JSON."""
    strictness: str
    tokenizer_hash: str

    @classmethod
    def from_policy(cls, policy: PolicyWeights) -> "MatchSettings":
        """Return a policy's match settings."""
        return cls(policy.renderer, policy.strictness, policy.tokenizer_hash)

    def to_json(self) -> bytes:
        """Return canonical JSON: equal settings are equal bytes."""
        fields = {
            "renderer": orjson.Fragment(self.renderer),
            "strictness": self.strictness,
            "tokenizer_hash": self.tokenizer_hash,
        }
        return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_json(cls, data: bytes) -> "MatchSettings":
        """Return the settings that `to_json` wrote."""
        fields = orjson.loads(data)
        renderer = orjson.dumps(fields["renderer"], option=orjson.OPT_SORT_KEYS)
        return cls(renderer, fields["strictness"], fields["tokenizer_hash"])


def newly_recorded(session: Session, policy: PolicyWeights) -> bytes:
    """Return the policy's settings as JSON, or empty if its previous turn had the same."""
    now = MatchSettings.from_policy(policy).to_json()
    return b"" if now == _latest(session, policy.policy) else now


def recorded_settings(session: Session, started: TurnStarted) -> MatchSettings | None:
    """Return the settings for a turn not folded yet, or None if they were not recorded."""
    if started.matching is None:
        return None
    settings = started.matching or _latest(session, started.policy)
    return None if settings is None else MatchSettings.from_json(settings)


def _latest(session: Session, policy: str) -> bytes | None:
    """Return the settings that matched the policy's latest turn, or None if not recorded."""
    for turn in reversed(session.turns.values()):
        if turn.started.policy == policy and turn.started.matching != b"":
            return turn.started.matching
    return None
