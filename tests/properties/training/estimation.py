"""The trainer's own way from sessions to advantages, without Kafka and devices."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from seamlessflow.trainer.data.batch import Batch, prepare
from seamlessflow.trainer.data.chains import Chain, Column
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.sessions import ValidSession, read
from seamlessflow.trainer.data.staleness import StepClock
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings
from seamlessflow.trainer.steps.annotation import estimated
from seamlessflow.trainer.steps.inputs import batch_rules
from tests.properties.training.random_sessions import MadeSession, TokenName
from tests.properties.training.told_session import Of

COMPUTED = sorted(set(Column) - {Column.TARGET, Column.TARGET_WEIGHT})


def section(advantage: str, **more: Any) -> TrainerSection:
    """Return settings of an estimator, with the teacher that one of them needs and no filter."""
    teacher = {"teacher": "model"} if advantage == "distill" else {}
    options = {"advantage": advantage, "filters": {}, **teacher, **more}
    return TrainerSection.model_validate(options)


def by_trainer(batch: Sequence[Sequence[MadeSession]], settings: TrainerSection) -> tuple[Of, Of]:
    """Return the advantages of all tokens that enter the loss, and what a critic learns."""
    rules = batch_rules(TrainerSettings(trainer=settings))
    made = {session.name: session for group in batch for session in group}
    prepared = [
        prepare(_group(number, group), StepClock({}, now=0), rules)
        for number, group in enumerate(batch)
    ]
    groups = [
        replace(
            group, chains=tuple(_annotated(chain, made[chain.session_id]) for chain in group.chains)
        )
        for group in prepared
    ]
    advantages, learned = Of(), Of()
    weights = list[float]()
    for chain in estimated(settings, Batch(0, tuple(groups))).chains():
        names = [(chain.session_id, token) for token in tokens_of(chain)]
        found_N = chain.tokens.advantages_T[chain.tokens.trained_T].tolist()
        advantages |= dict(zip(names, found_N, strict=True))
        if (weights_N := chain.columns.get(Column.TARGET_WEIGHT)) is not None:
            known_N = (weights_N > 0).tolist()
            targets = zip(names, chain.columns[Column.TARGET].tolist(), known_N, strict=True)
            learned |= {name: value for name, value, weighted in targets if weighted}
            weights += weights_N[weights_N > 0].tolist()
    assert np.allclose(weights, 1 / max(len(weights), 1)), "each place counts as much"
    return advantages, learned


def tokens_of(chain: Chain) -> list[TokenName]:
    """Return the names of the trained tokens of a chain."""
    trained_T, tokens = chain.tokens.trained_T, chain.tokens
    turns, offsets = tokens.turns_T[trained_T].tolist(), tokens.offsets_T[trained_T].tolist()
    return [(chain.turns[turn], place) for turn, place in zip(turns, offsets, strict=True)]


def _group(number: int, sessions: Sequence[MadeSession]) -> Group:
    read_ones = [
        read(session.trajectory, "tiny", 0, place) for place, session in enumerate(sessions)
    ]
    return Group(
        f"g{number}", tuple(session for session in read_ones if isinstance(session, ValidSession))
    )


def _annotated(chain: Chain, made: MadeSession) -> Chain:
    columns = {
        kind: np.array([made.value(kind, token) for token in tokens_of(chain)], np.float32)
        for kind in COMPUTED
    }
    return replace(chain, columns=columns)
