"""Weights of rewards that a run recorded."""

from typing import Any

import orjson

from seamlessflow.recorded.export.exporting import newest_weights
from seamlessflow.schemas import records as r


def started(policy: str, trainer: dict[str, Any], lineage: str = "a") -> r.LineageStarted:
    settings = orjson.dumps({"trainer": trainer})
    return r.LineageStarted(at_ms=0, policy=policy, lineage=lineage, step=0, settings=settings)


def test_the_weights_are_those_of_the_newest_trainer_of_each_policy() -> None:
    log = [
        started("p", {"rewards": {"test": 1.0, "style": 0.5}}),
        started("q", {"rewards": {"style": 1}}),
        started("p", {"rewards": {"test": 1.0, "style": 0.2, "length": 0}}, lineage="b"),
    ]
    assert newest_weights(log) == {"p": {"test": 1.0, "style": 0.2}, "q": {"style": 1.0}}


def test_a_trainer_that_named_no_rewards_has_one() -> None:
    """Releases before named rewards recorded settings without them."""
    assert newest_weights([started("p", {})]) == {"p": {"reward": 1.0}}
    assert newest_weights([]) == {}
