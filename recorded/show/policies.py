"""Policies on `fleet`: their tokenizers, and how histories of their messages are compared."""

from pathlib import Path

from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.rendering.tokenizer import Tokenizer, TokenizerError
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import PolicyWeights
from seamlessflow.schemas.topics import FLEET


class PolicyLookup:
    """Lookup of policies; reads `fleet` once for each name that is not known yet.

    A session that is followed may be of a policy that was published after the command began.
    """

    def __init__(self, settings: KafkaSettings, skipped: Skipped) -> None:
        self._settings = settings
        self._skipped = skipped
        self._known: dict[str, PolicyWeights | None] = {}
        self._tokenizers: dict[str, Tokenizer | None] = {}

    def strictness(self, policy: str) -> Strictness:
        """Return how later histories are compared with the messages that the policy sampled."""
        weights = self._find(policy)
        return weights.strictness if weights else "arguments"  # type: ignore[return-value]

    def tokenizer(self, policy: str) -> Tokenizer | None:
        """Return the policy's tokenizer, or None if its directory is not on this machine."""
        if policy not in self._tokenizers:
            self._tokenizers[policy] = _tokenizer(self._find(policy))
        return self._tokenizers[policy]

    def _find(self, policy: str) -> PolicyWeights | None:
        if policy not in self._known:
            # Counted once only: each reading meets the same unreadable records.
            skipped = Skipped() if self._known else self._skipped
            records = [item.record for item in read_topic(self._settings, FLEET, skipped)]
            self._known[policy] = None
            self._known |= {
                record.policy: record for record in records if isinstance(record, PolicyWeights)
            }
        return self._known[policy]


def _tokenizer(policy: PolicyWeights | None) -> Tokenizer | None:
    if policy is None:
        return None
    try:
        return Tokenizer.load(Path(policy.tokenizer_directory))
    except TokenizerError:
        return None
