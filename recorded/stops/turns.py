"""Recorded turns as a rule of control sees them, read from folded sessions. Pure.

`_NK`: the tokens of a turn, and the likeliest ones beside each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seamlessflow.consumers.trajectories.sessions.session import Session, Turn, TurnState
from seamlessflow.producers.rollout.control.contract import SampledToken, TurnFacts
from seamlessflow.schemas.tokens import unpack

_LIKELIEST = "topk_logprobs"


@dataclass(frozen=True, slots=True)
class TriedTurn:
    """A completed turn."""

    facts: TurnFacts
    ids: Sequence[int]
    logprobs: Sequence[float]
    likeliest_NK: npt.NDArray[np.float32]
    """Log-probs of the likeliest tokens that were recorded; without a column if none were."""
    thought: int | None
    """Number of its first tokens that are thinking, or None if that is not known."""

    @property
    def top(self) -> int:
        """Number of likeliest tokens recorded beside each token."""
        return int(self.likeliest_NK.shape[1])

    def tokens(self, top: int) -> Iterator[SampledToken]:
        """Yield its tokens, each with so many likeliest ones."""
        likeliest = self.likeliest_NK[:, :top].tolist()
        rows = zip(self.ids, self.logprobs, likeliest, strict=True)
        for place, (token_id, logprob, others) in enumerate(rows):
            yield SampledToken(token_id, logprob, others, place < (self.thought or 0))


@dataclass(frozen=True, slots=True)
class TriedSession:
    """A session of training: its turns in order, and whether it passed."""

    turns: Sequence[TriedTurn]
    passed: bool


def recorded_turns(session: Session) -> list[TriedTurn]:
    """Return the turns that were sampled to their end, in the order in which they began."""
    return [
        _turn(session, turn)
        for turn in session.sampled_turns
        if turn.state is TurnState.COMPLETED and session.tree.nodes[turn.node].ids
    ]


def _turn(session: Session, turn: Turn) -> TriedTurn:
    node = session.tree.nodes[turn.node]
    ids = unpack(bytes(node.ids))
    logprobs = np.frombuffer(bytes(node.logprobs), "<f4")
    likeliest = np.zeros((len(ids), 0), np.float32)
    tensor = turn.tensors.get(_LIKELIEST)
    if tensor is not None and tensor.data and tensor.to_token - tensor.from_token == len(ids):
        likeliest = np.frombuffer(tensor.data, "<f4").reshape(len(ids), -1)
    sampling = turn.started.sampling_effective
    facts = TurnFacts(
        prompt_length=turn.started.prompt_length,
        max_tokens=sampling.max_tokens,
        temperature=turn.started.logprob_temperature,
        tools=turn.started.tools is not None,
    )
    # The token that ends thinking is counted with it, and no rule sees it as thinking.
    counted = turn.reasoning_tokens
    thought = None if counted is None else max(0, counted - 1)
    return TriedTurn(facts, ids, logprobs.tolist(), likeliest, thought)
