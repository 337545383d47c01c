"""Checks of turns that a rule ended, by their tokens alone. Pure; yields what is wrong."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from seamlessflow.schemas import records as r
from seamlessflow.schemas.tokens import POLICY, TOKEN_BYTES, unpack
from tests.faults.rules.settings import CONTROL, PERIOD, TIMES

VERDICT = f"{CONTROL}: repeats"
_WHOLE = ("stop", "length")
_LIMIT = "control"


@dataclass(frozen=True)
class ControlledText:
    """The tokens of a whole turn, and the verdict that is recorded with it."""

    name: str
    tokens: Sequence[int]
    verdict: str
    at: int
    exempt: bool

    @property
    def fault(self) -> str:
        """Return what is wrong with the verdict; empty if it is the rule's."""
        at = repeats_at(self.tokens)
        if (self.verdict, self.at) != ((VERDICT, at) if at else ("", 0)):
            return f"{self.name}: {self.verdict!r} at {self.at}, but its tokens repeat at {at}"
        if at and not self.exempt and len(self.tokens) > at:
            return f"{self.name}: {len(self.tokens)} tokens, but it was to end at {at}"
        return ""


def repeats_at(tokens: Sequence[int]) -> int:
    """Return the number of tokens behind which a repetition is complete; 0 if there is none."""
    for end in range(1, len(tokens) + 1):
        for distance in range(1, PERIOD + 1):
            block = tokens[max(0, end - max(TIMES * distance, PERIOD)) : end]
            enough = len(block) == max(TIMES * distance, PERIOD)
            if enough and block[distance:] == block[:-distance]:
                return end
    return 0


def controlled_texts(
    trajectories: Iterable[r.Trajectory], controls: Mapping[str, r.TurnControl | None]
) -> list[ControlledText]:
    """Return the whole turns of sessions; `controls` has the recorded rule of each turn."""
    return [
        ControlledText(
            f"{trajectory.session_id} {node.turn_id}",
            unpack(trajectory.tokens[_bytes(node.start) : _bytes(node.start + node.length)]),
            node.control,
            node.control_at,
            control.exempt,
        )
        for trajectory in trajectories
        for node in trajectory.nodes
        if node.origin == POLICY and node.finish_reason in _WHOLE
        if (control := controls.get(node.turn_id or "")) is not None
    ]


def _bytes(tokens: int) -> int:
    return tokens * TOKEN_BYTES


def ending_faults(
    trajectories: Iterable[r.Trajectory], controls: Mapping[str, r.TurnControl | None]
) -> Iterator[str]:
    """Yield sessions that a rule should have ended, and others that have such an end."""
    for trajectory in trajectories:
        stopped = [
            node
            for node in trajectory.nodes
            if node.control and (control := controls.get(node.turn_id or "")) and not control.exempt
        ]
        pruned = trajectory.limit == _LIMIT
        if pruned != bool(stopped):
            yield f"{trajectory.session_id} is {trajectory.status}, with {len(stopped)} stops"
