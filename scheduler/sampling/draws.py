"""The next tasks to train on: each draw's source, and the sampler's choice within it.

The mixture decides each draw's source, so that shares stay exact. A sampler is asked once for all
draws from a source. If it chooses no task, or fails, tasks come in shuffled order. Then tasks under
way come only when no others are left. Called by `scheduler/decisions/pacing.py`.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

from seamlessflow.infra.user_functions import OwnSettings
from seamlessflow.scheduler.sampling.ask import (
    Ask,
    OfferedOpponents,
    Opponent,
    TaskChoice,
    candidate_of,
    checked_choices,
    checked_terms,
)
from seamlessflow.scheduler.sampling.index import TaskIndex, indexed
from seamlessflow.scheduler.sampling.registry import (
    VERSION,
    UsedMethod,
    used_forks,
    used_sampler,
    used_terms,
)
from seamlessflow.scheduler.sampling.settings import LiveForks, SamplerSection, TermsSection
from seamlessflow.scheduler.state.arms import Arms, arm_hash
from seamlessflow.scheduler.state.ledger import (
    EVAL,
    OPPONENT_GROUP,
    Ledger,
    opponent_arm,
    source_arm,
    source_name,
    task_arm,
)
from seamlessflow.scheduler.state.past import NO_VERSION
from seamlessflow.scheduler.state.state import State
from seamlessflow.scheduler.tasks.mixture import Drawing, Draws, Stages, sources
from seamlessflow.scheduler.tasks.source import AGAIN, SamplingRule, TaskRow, TaskSource
from seamlessflow.schemas.records import ParentPlace, SeedSession

FELL_BACK = "fell_back"
"""Figure on a task that came in shuffled order although a sampler should have chosen it."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A task to admit a group for, with the rule and the terms that chose it."""

    row: TaskRow
    rule: SamplingRule
    samples: int | None = None
    turn_limit: int | None = None
    arms: tuple[str, ...] = ()
    terms: str = ""
    """Rule for samples, turns and opponent; empty: none."""
    terms_sha256: str = ""
    fork_at: ParentPlace | None = None
    """Place in an ended session where its sessions begin."""
    explored: str = ""
    """Exploration's group from which it samples some sessions again; empty: none."""
    seeds: tuple[SeedSession, ...] = ()
    """The sessions to sample again, by sample."""
    opponent: int = NO_VERSION
    """Past version that its group plays against."""


@dataclass(frozen=True, slots=True)
class TaskSampling:
    """A run's sampler, terms and forks, with each source's index by its name."""

    sampler: UsedMethod | None = None
    terms: UsedMethod | None = None
    indexes: Mapping[str, TaskIndex] = field(default_factory=dict)
    candidates: int = 4096
    seed: int = 0
    samples: int = 1
    """A group's samples, `run.group_size`."""
    turn_limit: int = 0
    forks: UsedMethod | None = None
    fork_share: Fraction = Fraction(0)
    """Largest share of samples that go on from ended sessions."""
    groups_per_step: int = 1
    """Number of groups that share one drawn opponent, unless the terms say otherwise."""


def sampling_of(
    sampler: SamplerSection,
    terms: TermsSection,
    functions: OwnSettings,
    draws: Draws | None,
    sizes: tuple[int, int, int],
    live: LiveForks | None = None,
) -> TaskSampling:
    """Return the sampling that the settings name; `sizes`: seed, `group_size` and `turn_limit`.

    Reads all tasks once if a rule needs their pools. Raises `FunctionUnusable`, `TasksRejected`.
    """
    chosen = used_sampler(sampler, functions)
    used = used_terms(terms, functions)
    live = live or LiveForks()
    forks = used_forks(live, functions)
    indexes = {}
    if draws is not None and (chosen or used or forks):
        indexes = {
            source.name: indexed(source.rows, source.name, sampler.by) for source in sources(draws)
        }
    return TaskSampling(chosen, used, indexes, sampler.candidates, *sizes, forks, live.share)


class _Slot(NamedTuple):
    """A draw to make."""

    source: TaskSource
    source_draw: int
    """Number of earlier draws from its source."""
    figures: Mapping[str, float]

    def at(self, source_draw: int) -> "_Slot":
        """Return the slot with another draw from its source."""
        has_number = "source_draw" in self.figures
        more = {"source_draw": source_draw} if has_number else {}
        return self._replace(source_draw=source_draw, figures={**self.figures, **more})


def next_draws(
    state: State, arms: Arms, draws: Draws, sampling: TaskSampling, count: int
) -> list[Drawn]:
    """Return the next tasks: first those to try again, then new ones."""
    ledger = state.first.ledger
    again = ledger.again[:count]
    # A task that is no longer in the file gets its group too, which then ends at its deadline.
    drawn = [Drawn(draws.find(task) or TaskRow(task, b"", {}), AGAIN) for task in again]
    slots = _slots(ledger, draws, state.first.steps.trained, count - len(again))
    drawn += _chosen(state, arms, sampling, slots)
    opponents = _opponents(state, arms, sampling)
    with_terms = []
    for number, each in enumerate(drawn, ledger.admitted + ledger.explored):
        with_terms.append(_with_terms(state, arms, sampling, each, number, opponents))
        opponents = _opponents_behind(opponents, with_terms[-1])
    return with_terms


def _slots(ledger: Ledger, draws: Draws, step: int, count: int) -> list[_Slot]:
    numbers = range(ledger.drawn, ledger.drawn + count)
    if not isinstance(draws, Stages):
        return [_slot(draws, number, number) for number in numbers]
    stage, mixture = draws.at(step)
    began = ledger.stage_began if stage == ledger.stage else ledger.drawn
    slots = []
    more: dict[str, int] = {}
    for number in numbers:
        slot = _slot(mixture, number - began, number)
        name = slot.source.name
        # Each source continues after its own draws in earlier stages.
        place = ledger.drawn_of.get(name, 0) + more.get(name, 0)
        more[name] = more.get(name, 0) + 1
        slots.append(slot._replace(figures={**slot.figures, "stage": stage}).at(place))
    return slots


def _slot(draws: Drawing, within: int, number: int) -> _Slot:
    if isinstance(draws, TaskSource):
        return _Slot(draws, within, {})
    part, source_draw = draws.part_of(within)
    return _Slot(part.source, source_draw, part.figures(number, source_draw))


def _chosen(
    state: State, arms: Arms, sampling: TaskSampling, slots: Sequence[_Slot]
) -> list[Drawn]:
    """Return tasks for the first slots, in slot order: for all, or for at least one.

    If a sampler chose no task for a slot, later slots stay empty too, so that shares stay exact.
    The next decision asks again.
    """
    of_source: dict[str, list[Drawn]] = {}
    for name in dict.fromkeys(slot.source.name for slot in slots):
        wanted = [slot for slot in slots if slot.source.name == name]
        of_source[name] = _from_source(state, arms, sampling, wanted)
    drawn = []
    for slot in slots:
        if not of_source[slot.source.name]:
            break
        drawn.append(of_source[slot.source.name].pop(0))
    return drawn


def _from_source(
    state: State, arms: Arms, sampling: TaskSampling, slots: Sequence[_Slot]
) -> list[Drawn]:
    sampler = sampling.sampler
    if sampler is None:
        return [_in_order(slot) for slot in slots]
    ask = _ask(state, arms, sampling, slots)
    choices = sampler.result(lambda answer: checked_choices(ask, answer), ask)
    if not choices:  # it failed, or all tasks are under way: the run goes on
        return [*_fallen_back(ask, slots)]
    chosen = []
    for slot, choice in zip(slots, choices, strict=False):
        # The draw's figures come last, because the next draws continue from them.
        figures = {**choice.figures, **_number(slot), **slot.figures}
        rule = SamplingRule(sampler.name, VERSION, figures, sampler.sha256)
        row = ask.tasks.rows[choice.place]
        chosen.append(Drawn(row, rule, choice.samples, choice.turn_limit, choice.arms))
    return chosen


def _fallen_back(ask: Ask, slots: Sequence[_Slot]) -> Iterator[Drawn]:
    """Yield the next tasks in order; those under way only if no other task is left."""
    drawn: set[int] = set()
    for slot in slots:
        draw = next(_free_draws(ask, slot, drawn), slot.source_draw)
        drawn.add(slot.source.place(draw))
        yield _in_order(slot.at(draw), {FELL_BACK: 1.0})


def _free_draws(ask: Ask, slot: _Slot, drawn: set[int]) -> Iterator[int]:
    """Yield the source's draws whose tasks are free, from this draw on, for two passes."""
    for draw in range(slot.source_draw, slot.source_draw + 2 * len(slot.source.rows)):
        place = slot.source.place(draw)
        if place not in drawn and ask.is_free(place):
            yield draw


def _number(slot: _Slot) -> Mapping[str, float]:
    return {"draw": slot.source_draw, "tasks": len(slot.source.rows)}


def _in_order(slot: _Slot, more: Mapping[str, float] | None = None) -> Drawn:
    rule = slot.source.rule(slot.source_draw)
    figures = {**rule.figures, **slot.figures, **(more or {})}
    return Drawn(slot.source.draw(slot.source_draw), replace(rule, figures=figures))


def _ask(state: State, arms: Arms, sampling: TaskSampling, slots: Sequence[_Slot]) -> Ask:
    source = slots[0].source
    draw = slots[0].source_draw
    pool = arms.arm(source_arm(source.name))
    return Ask(
        count=len(slots),
        draw=draw,
        samples=sampling.samples,
        random=_random(f"{sampling.seed} {source.name} {draw}"),
        source=source.name,
        figures=pool.figures,
        pool=pool,
        tasks=sampling.indexes[source.name],
        arms=arms,
        step=state.first.steps.trained,
        under_way=_under_way(state),
        most_candidates=sampling.candidates,
        seed=source.seed,
    )


def _under_way(state: State) -> frozenset[int]:
    """Return the keys of tasks that have a group under way, or wait for another one."""
    groups = [group for policy in state.by_policy for group in policy.ledger.groups.values()]
    drawn = {group.task_id for group in groups if group.purpose != EVAL and group.fork_at is None}
    tasks = drawn | set(state.first.ledger.again)
    return frozenset(arm_hash(task_arm(task)) for task in tasks)


def _random(seed: str) -> random.Random:
    return random.Random(seed)  # nosec B311 # repeatable draws


def _with_terms(
    state: State,
    arms: Arms,
    sampling: TaskSampling,
    drawn: Drawn,
    number: int,
    opponents: OfferedOpponents | None,
) -> Drawn:
    """Return a task with its group's terms, and the arms that its result counts for."""
    row = drawn.row
    name = source_name(row.split, row.fork is not None)
    index = sampling.indexes.get(name)
    place = None if index is None else index.place(arm_hash(task_arm(row.task_id)))
    if index is None or place is None:
        return drawn
    pool = index.pool(place)
    if pool != source_arm(name):
        drawn = replace(drawn, arms=tuple(dict.fromkeys((*drawn.arms, pool))))
    terms = sampling.terms
    if terms is None:
        return drawn
    choice = _full_choice(drawn, place, sampling)
    candidate = candidate_of(index, arms, state.first.steps.trained, place)
    candidate = replace(candidate, opponents=opponents)
    source = _random(f"{sampling.seed} terms {number}")
    changed = terms.result(
        lambda answer: checked_terms(candidate, answer), candidate, choice, source
    )
    if changed is None:
        return drawn
    drawn = replace(
        drawn,
        samples=changed.samples,
        turn_limit=changed.turn_limit,
        terms=terms.name,
        terms_sha256=terms.sha256,
    )
    return drawn if changed.opponent is None else _against(drawn, changed, changed.opponent)


def _against(drawn: Drawn, choice: TaskChoice, version: int) -> Drawn:
    """Return a task whose group plays against a version."""
    figures = {**drawn.rule.figures, **choice.figures}
    return replace(
        drawn,
        opponent=version,
        arms=tuple(dict.fromkeys((*drawn.arms, opponent_arm(version)))),
        rule=replace(drawn.rule, figures=figures),
    )


def _opponents(state: State, arms: Arms, sampling: TaskSampling) -> OfferedOpponents | None:
    """Return the versions that the next group may play against; None if no policy shows any."""
    if sampling.terms is None or len(state.shown) != 1:
        return None
    (shown,) = state.shown.values()
    if shown.newest is None:
        return None
    ledger = state.first.ledger
    return OfferedOpponents(
        past=[Opponent(version, arms.win_rate(opponent_arm(version))) for version in shown.past],
        newest=shown.newest.version,
        present=None if ledger.opponent == NO_VERSION else ledger.opponent,
        groups=ledger.opponent_groups,
        groups_per_step=sampling.groups_per_step,
    )


def _opponents_behind(opponents: OfferedOpponents | None, drawn: Drawn) -> OfferedOpponents | None:
    """Return the versions to offer after a drawn task."""
    if opponents is None:
        return None
    present = None if drawn.opponent == NO_VERSION else drawn.opponent
    place = int(drawn.rule.figures.get(OPPONENT_GROUP, -1))
    return replace(opponents, present=present, groups=place + 1)


def _full_choice(drawn: Drawn, place: int, sampling: TaskSampling) -> TaskChoice:
    row = drawn.row
    samples = [drawn.samples, row.samples, sampling.samples]
    limits = [drawn.turn_limit, row.turn_limit, sampling.turn_limit]
    return TaskChoice(
        place=place,
        samples=next(count for count in samples if count is not None),
        turn_limit=next(count for count in limits if count is not None),
        arms=drawn.arms,
        figures=drawn.rule.figures,
    )
