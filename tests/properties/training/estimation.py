"""The trainer's own way from sessions to advantages, without Kafka and devices."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from seamlessflow.trainer.data.batch import Batch, prepare
from seamlessflow.trainer.data.chains import Chain, Column
from seamlessflow.trainer.data.credit.values import EVERY_OUTPUT, Lesson
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.sessions import ValidSession, read
from seamlessflow.trainer.data.staleness import StepClock
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings
from seamlessflow.trainer.steps.annotation import ESTIMATED, estimated
from seamlessflow.trainer.steps.inputs import batch_rules
from tests.properties.training.random_sessions import MadeSession, TokenName
from tests.properties.training.told_session import Of

COMPUTED = sorted(set(Column) - ESTIMATED)


def section(advantage: str, **more: Any) -> TrainerSection:
    """Return settings of an estimator, with the teacher that one of them needs and no filter."""
    teacher = {"teacher": "model"} if advantage == "distill" else {}
    options = {"advantage": advantage, "filters": {}, **teacher, **more}
    return TrainerSection.model_validate(options)


def by_trainer(batch: Sequence[Sequence[MadeSession]], settings: TrainerSection) -> tuple[Of, Of]:
    """Return the advantages of all tokens that enter the loss, and what a critic learns.

    What it learns of another value than `Column.VALUE` has the name of that behind the session's.
    """
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
    chains = estimated(settings, Batch(0, tuple(groups))).chains()
    for chain in chains:
        found_N = chain.tokens.advantages_T[chain.tokens.trained_T].tolist()
        names = [(chain.session_id, token) for token in tokens_of(chain)]
        advantages |= dict(zip(names, found_N, strict=True))
    for output in EVERY_OUTPUT:
        weights = list[float]()
        for lesson in output.lessons:
            learned |= _learned(chains, lesson, weights)
        assert np.allclose(weights, 1 / max(len(weights), 1)), "each place counts as much"
    return advantages, learned


def _learned(chains: Sequence[Chain], lesson: Lesson, weights: list[float]) -> Of:
    """Return what a critic learns of a value; add the weights there."""
    learned = Of()
    for chain in chains:
        if (weights_N := chain.columns.get(lesson.weight)) is None:
            continue
        targets = zip(tokens_of(chain), chain.columns[lesson.target], weights_N > 0, strict=True)
        name = learner(chain.session_id, lesson.value)
        learned |= {(name, token): float(value) for token, value, counts in targets if counts}
        weights += weights_N[weights_N > 0].tolist()
    return learned


def learner(session: str, value: Column) -> str:
    """Return the name by which targets of a value in a session are listed."""
    return session if value is Column.VALUE else f"{session} {value}"


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
