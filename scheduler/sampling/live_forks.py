"""The next groups that go on from the run's ended sessions, as the forks rule chooses them.

Called by `scheduler/decisions/pacing.py`, before tasks are drawn.
"""

import random

from seamlessflow.scheduler.sampling.ask import candidate_of
from seamlessflow.scheduler.sampling.draws import Drawn, TaskSampling
from seamlessflow.scheduler.sampling.forks import (
    LIVE,
    ForkAsk,
    ForkBudget,
    budget,
    checked_forks,
)
from seamlessflow.scheduler.sampling.registry import VERSION
from seamlessflow.scheduler.state.arms import Arms, arm_hash
from seamlessflow.scheduler.state.ledger import source_name, task_arm
from seamlessflow.scheduler.state.state import State
from seamlessflow.scheduler.tasks.mixture import Draws
from seamlessflow.scheduler.tasks.source import SamplingRule
from seamlessflow.schemas.records import ParentPlace


def next_forks(
    state: State, arms: Arms, draws: Draws, sampling: TaskSampling, count: int
) -> list[Drawn]:
    """Return the places in ended sessions to go on from, for at most `count` groups."""
    if sampling.forks is None:
        return []
    most = budget(state.offers, sampling.fork_share, count)
    if not most.samples or not most.groups:
        return []
    ask = _fork_ask(state, arms, draws, sampling, most)
    choices = sampling.forks.result(checked_forks, ask) if ask.offers else []
    return [
        Drawn(
            ask.rows[choice.offer.task_id],
            SamplingRule(LIVE, VERSION, choice.figures, sampling.forks.sha256),
            choice.samples,
            fork_at=ParentPlace(
                session_id=choice.offer.session_id,
                turn=choice.turn,
                first_offset=choice.offer.first_offset,
                parent_return=choice.offer.parent_return,
            ),
        )
        for choice in choices or []  # None: the user's own prediction failed
    ]


def _fork_ask(
    state: State, arms: Arms, draws: Draws, sampling: TaskSampling, most: ForkBudget
) -> ForkAsk:
    """Return the question for places, leaving out offers whose task the run no longer has."""
    step = state.first.steps.trained
    rows = {offer.task_id: draws.find(offer.task_id) for offer in state.offers.sessions}
    offers = []
    for offer in state.offers.sessions:
        row = rows[offer.task_id]
        index = None if row is None else sampling.indexes.get(source_name(row.split, False))
        place = None if index is None else index.place(arm_hash(task_arm(offer.task_id)))
        if index is not None and place is not None:
            offers.append((offer, candidate_of(index, arms, step, place)))
    seed = f"{sampling.seed} forks {state.first.ledger.admitted}"
    return ForkAsk(
        offers=offers,
        rows={name: row for name, row in rows.items() if row is not None},
        budget=most,
        most=sampling.samples,
        random=random.Random(seed),  # nosec B311 # repeatable draws
    )
