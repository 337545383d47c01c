"""Past versions of a policy that a frozen one shows: which, when, and what waits for them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import pytest

from seamlessflow.infra.settings import PastSection
from seamlessflow.scheduler.decisions import group_credits, showing
from seamlessflow.scheduler.decisions.decide import View, decide
from seamlessflow.scheduler.decisions.pacing import admissions
from seamlessflow.scheduler.sampling.draws import TaskSampling, sampling_of
from seamlessflow.scheduler.sampling.settings import SamplerSection, TermsSection
from seamlessflow.scheduler.settings import RunSection
from seamlessflow.scheduler.state import state
from seamlessflow.scheduler.state.arms import Arms
from seamlessflow.scheduler.state.ledger import opponent_arm, opponent_of
from seamlessflow.scheduler.state.state import State, from_json, to_json
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import FLEET
from tests.builders.records import control
from tests.builders.records.fleet import heartbeat, weights
from tests.builders.scheduler.inputs import fleet_of, rules_for, scheduler_settings
from tests.builders.scheduler.sampling import source_of

RIVAL = "rival"
EVERY = 4
FROZEN = {RIVAL: PastSection(policy="main", every=EVERY)}
RUN = RunSection(
    policy="main", policies=("main",), frozen=FROZEN, groups_per_step=2, lag=1, group_size=2
)
SETTINGS = scheduler_settings(RUN)
BEGUN: list[Record] = [
    control.claimed(),
    control.joined("w0", "rollout", ("rollout", "train")),
    control.joined("w1", "rollout", ("rollout",)),
]


def version(number: int) -> r.WeightsPublished:
    return control.published(
        number,
        step=number,
        policy="main",
        directory=f"weights/{number}",
        manifest_sha256=f"hash of {number}",
    )


def fold(*records: Record, start: State | None = None) -> State:
    return reduce(state.apply, records, start or State.of_run(RUN.all_policies, RUN.frozen))


def shows(number: int, past: int) -> r.WeightsPublished:
    record = replace(version(past), policy=RIVAL, version=number)
    assert isinstance(record, r.WeightsPublished)
    return record


def served(number: int, worker: str = "w1") -> Record:
    return control.acquired(worker, "rollout", 0, slot=1, policy=RIVAL, version=number)


def rolling(*records: Record) -> State:
    of_main = control.acquired("w0", "rollout", 0, slot=0, policy="main", version=0)
    return fold(*BEGUN, of_main, *records)


def changes(current: State) -> list[tuple[str, Record]]:
    announced = {"main": weights(policy="main", directory="weights/0")}
    number = current.shown[RIVAL].number
    if number >= 0:
        announced[RIVAL] = weights(policy=RIVAL, version=number)
    fleet = replace(fleet_of(), weights=announced)
    return list(showing.changes(current, current.first.ledger, fleet, now_ms=7))


def shown_now(current: State) -> list[tuple[int, str]]:
    """Return number and directory of each version that is to be shown anew."""
    records = [record for _, record in changes(current)]
    return [
        (record.version, record.directory)
        for record in records
        if isinstance(record, r.WeightsPublished)
    ]


def test_the_newest_past_version_is_shown_under_numbers_that_grow() -> None:
    assert shown_now(fold(*BEGUN)) == []
    first = fold(*BEGUN, version(0))
    assert shown_now(first) == [(0, "weights/0")]
    later = fold(shows(0, 0), *map(version, (1, 2, 3)), start=first)
    assert shown_now(later) == []
    due = fold(version(4), version(5), start=later)
    assert shown_now(due) == [(1, "weights/4")]
    assert shown_now(fold(shows(1, 4), start=due)) == []


def test_workers_get_the_same_version_with_the_other_policys_way_of_rendering() -> None:
    (_, published), (topic, loaded) = changes(fold(*BEGUN, version(0)))
    assert topic == FLEET.name
    assert isinstance(published, r.WeightsPublished)
    assert isinstance(loaded, r.PolicyWeights)
    assert (loaded.policy, loaded.version, loaded.frozen) == (RIVAL, 0, True)
    assert (loaded.directory, loaded.manifest_sha256) == ("weights/0", "hash of 0")
    assert (published.directory, published.policy) == ("weights/0", RIVAL)
    assert loaded.renderer == weights().renderer


def test_what_a_scheduler_that_died_announced_alone_is_loaded_too() -> None:
    current = fold(*BEGUN, *map(version, range(5)), shows(0, 0), shows(1, 4))
    before = {"main": weights(policy="main"), RIVAL: weights(policy=RIVAL, version=0)}
    fleet = replace(fleet_of(), weights=before)
    ((topic, loaded),) = showing.changes(current, current.first.ledger, fleet, now_ms=7)
    assert topic == FLEET.name
    assert isinstance(loaded, r.PolicyWeights)
    assert (loaded.policy, loaded.version, loaded.directory) == (RIVAL, 1, "weights/4")


def test_behind_a_skipped_step_the_next_version_is_the_past_one() -> None:
    current = fold(*BEGUN, *map(version, (0, 1, 2, 3, 5, 6, 7, 9)))
    assert list(current.shown[RIVAL].past) == [0, 5, 9]


def test_two_schedulers_that_show_different_ones_under_a_number_are_corrected() -> None:
    current = fold(*BEGUN, *map(version, range(5)), shows(0, 4), shows(0, 0))
    assert shown_now(current) == [(1, "weights/4")]


def test_its_state_survives_a_takeover_and_other_terms_begin_anew() -> None:
    current = fold(*BEGUN, *map(version, range(5)), shows(0, 4), served(0))
    assert from_json(to_json(current)) == current
    assert current.begins_as(fold())
    other = State.of_run(("main",), {RIVAL: PastSection(policy="main", every=EVERY + 1)})
    assert not current.begins_as(other)


def test_all_its_workers_serve_what_is_shown_or_it_is_not_served() -> None:
    current = rolling(version(0), shows(0, 0))
    assert not current.shown[RIVAL].is_served
    current = fold(served(0), start=current)
    assert current.shown[RIVAL].is_served
    assert not fold(served(-1, "w2"), start=current).shown[RIVAL].is_served
    late = fold(*map(version, range(1, 5)), shows(1, 4), start=current)
    assert not late.shown[RIVAL].is_served
    loaded = control.loaded(worker="w1", policy=RIVAL, version=1)
    assert fold(loaded, start=late).shown[RIVAL].is_served
    lost = control.lost("w1", "rollout")
    assert not fold(loaded, lost, start=late).shown[RIVAL].is_served


def admitted(name: str, opponent: int) -> Record:
    return control.admitted(name, name, policy="main", arms=(opponent_arm(opponent),))


def test_the_opponent_of_the_groups_that_run_is_shown() -> None:
    current = rolling(*map(version, range(10)), shows(0, 8), served(0), admitted("g", 4))
    assert shown_now(current) == [(1, "weights/4")]
    assert not showing.is_served(current, current.first.ledger)
    current = fold(shows(1, 4), start=current)
    assert not showing.is_served(current, current.first.ledger)
    loaded = control.loaded(worker="w1", policy=RIVAL, version=1)
    current = fold(loaded, start=current)
    assert showing.is_served(current, current.first.ledger)
    # It stays behind the end of the group, until others have another one.
    assert shown_now(fold(control.ready("g", policy="main"), start=current)) == []


def test_no_task_is_issued_before_the_opponent_is_served() -> None:
    def issued(current: State) -> list[Record]:
        beats = [heartbeat(name, "rollout", policy="main") for name in ("w0", "w1")]
        view = View(current, fleet_of(*beats))
        records = [record for _, record in decide(view, rules_for(SETTINGS), 0)]
        return [record for record in records if isinstance(record, r.Task)]

    group = control.admitted("run-0", "task-0", policy="main", arms=(opponent_arm(0),))
    current = rolling(version(0), shows(0, 0), group)
    assert issued(current) == []
    assert len(issued(fold(served(0), start=current))) == RUN.group_size


@pytest.mark.parametrize(
    ("running", "drawn", "together"),
    [
        ((), (4, 4, 8), 2),
        ((4,), (4, 4, 8), 2),
        ((8,), (4, 4), 0),
        ((8,), (-1, 8, 4), 2),
        ((), (), 0),
        ((), (-1, -1), 2),
    ],
)
def test_groups_with_another_opponent_wait_for_those_that_run(
    running: Sequence[int], drawn: Sequence[int], together: int
) -> None:
    current = fold(*(admitted(f"g{number}", each) for number, each in enumerate(running)))
    assert showing.same_opponent(current.first.ledger, drawn) == together


def league_of(draws: object) -> TaskSampling:
    terms = TermsSection.model_validate({"name": "league"})
    made = sampling_of(SamplerSection(), terms, {}, draws, (0, 2, 0))  # type: ignore[arg-type]
    return replace(made, groups_per_step=RUN.groups_per_step)


def test_a_run_admits_groups_against_one_opponent_at_a_time() -> None:
    source = source_of(50)
    sampling = league_of(source)
    current = rolling(*map(version, range(10)), shows(0, 8), served(0))
    seen: list[int] = []
    for _ in range(20):
        groups = admissions(current, SETTINGS, source, 0, Arms(), sampling)
        assert groups
        opponents = {opponent_of(group.arms) for group in groups}
        assert len(opponents) == 1
        assert opponents <= {0, 4, 8, 9}
        assert all(group.terms == "league" for group in groups)
        seen += [opponent_of(group.arms) for group in groups]
        names = [group.group_id for group in groups]
        current = fold(
            *groups,
            *(control.dropped(name, "no_token", policy="main") for name in names),
            start=current,
        )
    assert len(set(seen)) > 1
    assert group_credits.free_credits(current, SETTINGS, 0) > 0


def test_groups_begin_once_the_frozen_policy_has_an_engine() -> None:
    source = source_of(9)
    without = rolling(version(0), shows(0, 0))
    assert admissions(without, SETTINGS, source, 0) == []
    assert admissions(fold(served(0), start=without), SETTINGS, source, 0)
