"""Groups of one-turn sessions, and the rules by which a batch is made of them."""

from dataclasses import replace

from seamlessflow.trainer.data.advantages import ReturnRules, estimator
from seamlessflow.trainer.data.batch import Prepared
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.rules import BatchRules
from seamlessflow.trainer.data.sessions import ValidSession, read
from seamlessflow.trainer.data.staleness import StepClock
from tests.builders.trainer.chains import some_chains
from tests.builders.trainer.trajectories import one_turn

GRPO = estimator("grpo", ReturnRules())
RULES = BatchRules(GRPO, {"zero_variance": "count", "untrainable": "drop"}, "mask", 1)


NOW = StepClock({}, now=3)


def session(name: str, reward: float, version: int = 3, length: int = 3) -> ValidSession:
    result = read(one_turn(name, reward, version, length), "tiny", 0, 0)
    assert isinstance(result, ValidSession)
    return result


def group(name: str, *rewards: float, version: int = 3, length: int = 3) -> Group:
    sessions = [
        session(f"{name}.{number}.0", reward, version, length)
        for number, reward in enumerate(rewards)
    ]
    return Group(name, tuple(sessions))


def two_groups() -> tuple[Prepared, ...]:
    """Return two groups of two sessions with two chains each, one after the other."""
    chains = iter(some_chains(count=8))
    return tuple(
        Prepared(
            group(sessions, 1.0, 0.0),
            tuple(replace(next(chains), session_id=session) for session in sessions),
        )
        for sessions in ("abab", "cdcd")
    )
