"""A rule that ends turns of a simulation where the sum of their tokens is a multiple of a number.

So its place depends on each token, and on a state that goes from worker to worker.
"""

from collections.abc import Collection

from seamlessflow.consumers.trajectories.decisions.context import ControlTerms
from seamlessflow.producers.rollout.control.contract import (
    Ends,
    SampledToken,
    TurnFacts,
    TurnStop,
)
from seamlessflow.producers.rollout.control.controlled import ControlledTurn, ThinkingMarks
from seamlessflow.producers.rollout.control.registry import UsedRules
from seamlessflow.schemas import records as r
from tests.properties.simulation.managers import SteppedManager

FEWEST, DIVISOR = 3, 7
"""Fewest tokens of a turn that it ends, and the divisor of their sum."""
_NAME, _REASON = "simulation:sums", "a multiple"
VERDICT = f"{_NAME}: {_REASON}"
_State = list[int]


class Sums:
    """The rule; its state is the number of tokens and their sum."""

    top = 0

    def __init__(self, ends: Ends) -> None:
        self._ends = ends

    def begin(self, turn: TurnFacts) -> _State:
        return [0, 0]

    def step(self, state: _State, token: SampledToken) -> tuple[_State, TurnStop | None]:
        behind = [state[0] + 1, state[1] + token.token_id]
        stops = behind[0] >= FEWEST and behind[1] % DIVISOR == 0
        return behind, TurnStop(_REASON, self._ends) if stops else None


class RulesWithSums(UsedRules):
    """The rules of a worker that has this one."""

    turn = ControlledTurn
    ends: Ends = "turn"

    def controlled(
        self, request: r.GenerateTurn, marks: ThinkingMarks | None, ends: Collection[int]
    ) -> ControlledTurn | None:
        rule = Sums(self.ends)
        return None if request.control is None else self.turn(request, rule, marks, ends)


class RulesThatEndSessions(RulesWithSums):
    """Those of a worker whose rule ends sessions."""

    ends = "session"


class StopsTurns(SteppedManager):
    """The real manager, with this rule in its settings."""

    control = ControlTerms(r.TurnControl(name=_NAME, settings=b"{}", sha256="a file"))
