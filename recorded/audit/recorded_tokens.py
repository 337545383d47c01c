"""Sampled tokens of a recorded session, read from its trajectory. Pure.

A training on recorded sessions has no events: what its trainer was given is the trajectory. An
unfolding of its arrays that is independent of the trainer's. Called by the check of tokens.
"""

from collections.abc import Iterator
from dataclasses import replace

from seamlessflow.recorded.audit.sampled_tokens import SampledSession
from seamlessflow.schemas import records as r
from seamlessflow.schemas.tokens import TOKEN_BYTES

FOREIGN = "foreign"
_SAMPLED = ("policy", FOREIGN)
"""Origins of nodes whose tokens may be trained."""


def recorded_session(trajectory: r.Trajectory) -> SampledSession:
    """Return the completions of a session; one in several nodes goes on in their order."""
    session = SampledSession()
    for node in trajectory.nodes:
        if node.origin in _SAMPLED:
            turn = session.turn(node.turn_id)
            turn.spans += _spans(trajectory, node, len(turn))
            part = slice(node.start * TOKEN_BYTES, (node.start + node.length) * TOKEN_BYTES)
            turn.ids += trajectory.tokens[part]
            turn.logprobs += trajectory.logprobs[part]
            turn.completed = True
    return session


def _spans(
    trajectory: r.Trajectory, node: r.TrajectoryNode, behind: int
) -> Iterator[r.VersionSpan]:
    """Yield the versions of a node's tokens; the first of them is at `behind` in its turn.

    A span of a trajectory counts from the start of its arrays, and ends where the next begins.
    """
    spans = sorted(trajectory.spans, key=lambda span: span.start)
    end = node.start + node.length
    ends = [*(min(span.start, end) for span in spans[1:]), end]
    for span, span_end in zip(spans, ends, strict=False):
        start = max(span.start, node.start)
        if start < span_end:
            at = behind + start - node.start
            yield replace(span, start=at)
