"""Digests, differences and shares of a replay."""

from dataclasses import replace

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.merge.difference import Difference
from seamlessflow.recorded.merge.partitions import MergeJob
from seamlessflow.recorded.merge.rules import MergeRules
from seamlessflow.recorded.merge.shards import parts
from seamlessflow.recorded.merge.targets import MergeProgress
from seamlessflow.recorded.merge.verification import Comparison, digest
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.schemas.records import Reward, Trajectory
from tests.builders.records.content import ids
from tests.builders.records.sessions import completed, dispatched, started
from tests.builders.trajectories.session_builder import finished, session_after


def made(session_id: str = "s") -> Trajectory:
    turn = session_after(started(), dispatched(), completed(ids(7, 8)))
    return replace(finished(turn), session_id=session_id)


def at(session_id: str, first: int, last: int) -> Trajectory:
    return replace(made(session_id), first_offset=first, last_offset=last)


def test_recorded_trajectories_are_compared_by_their_bytes() -> None:
    replayed = {name: digest(made(name)) for name in ("equal", "changed", "missing", "recent")}
    comparison = Comparison(replayed, {5: (50, 200)}, frozenset({"recent"}))
    comparison.apply(made("equal"), 3, 10)
    comparison.apply(made("equal"), 3, 11)
    comparison.apply(replace(made("changed"), reason="other"), 4, 12)
    comparison.apply(at("gone", 49, 120), 5, 13)
    comparison.apply(at("later", 60, 200), 5, 14)
    comparison.apply(at("invented", 60, 199), 5, 15)
    counts = comparison.equal, comparison.copies, comparison.not_checkable, comparison.later
    assert counts == (1, 1, 1, 1)
    assert comparison.different == {"changed": (4, 12), "invented": (5, 15)}
    assert comparison.missing == ["missing"]


def test_a_record_that_retention_may_have_removed_is_not_missing() -> None:
    replayed = {name: digest(made(name)) for name in ("old", "new", "kept")}
    ended_ms = {"old": 1_000, "new": 9_000, "kept": 1_000}
    comparison = Comparison(replayed, {5: (0, 200)}, ended_ms=ended_ms, kept_since_ms=5_000)
    comparison.apply(made("kept"), 3, 10)
    assert (comparison.missing, comparison.removed, comparison.equal) == (["new"], 1, 1)
    whole = Comparison(replayed, {5: (0, 200)}, ended_ms=ended_ms)
    assert (len(whole.missing), whole.removed) == (3, 0)


def test_equal_merges_are_no_difference() -> None:
    difference = Difference()
    difference.apply(made(), replace(made(), fold_version=2))
    assert difference == Difference()


def test_differences_are_summed_over_sessions_and_shares() -> None:
    before = made()
    masked = replace(before, loss_mask=bytes(4), masked_tokens={"inexact": 2})
    judged = replace(before, rewards=(Reward(value=0.5),), status="unrewarded")
    difference, other = Difference(), Difference()
    difference.apply(before, masked)
    other.apply(before, judged)
    other.apply(masked, before)
    difference.add(other)
    assert (difference.sessions, difference.rewards) == (3, 1)
    assert difference.masked == {"inexact": 0}
    assert difference.statuses == {"complete to unrewarded": 1}


def test_rules_name_themselves_and_say_only_what_differs() -> None:
    rules = MergeRules(siblings="all", return_of={"correct": 1.0})
    assert dict(rules.each()) == {
        "siblings = all": MergeRules(siblings="all"),
        "return_of = 1 correct": MergeRules(return_of={"correct": 1.0}),
    }
    assert MergeRules().encode() == "{}"
    assert rules.encode() == '{"return_of":{"correct":1.0},"siblings":"all"}'


def test_parts_have_every_partition_once_and_the_same_ones_for_any_selection() -> None:
    job = MergeJob(KafkaSettings(), {number: (5, 5 + number) for number in range(32)})
    numbers = [list(part.bounds) for part in parts(job)]
    assert sorted(number for some in numbers for number in some) == [*range(32)]
    assert numbers[0] == [7, 15, 23, 31]
    few = [list(part.bounds) for part in parts(job.part([3, 7, 11]))]
    assert sorted(few) == [[3, 11], [7]]


def test_the_content_of_a_target_names_rules_and_selection() -> None:
    job = MergeJob(KafkaSettings(), {})
    other = replace(job, selection=SessionSelection(groups=frozenset({"g"}), offsets={3: (1, 2)}))
    assert job.content() == '["{}","{}"]'
    assert '\\"groups\\":[\\"g\\"]' in other.content()


def test_what_an_earlier_replay_covered_stays_covered_until_this_one_has_read_as_far() -> None:
    begun = MergeProgress(covered=100, rebuild=60, rebuild_epoch=3)
    assert begun.reached(70, 60, 3) == MergeProgress(100, 60, 3)
    assert begun.reached(120, 110, 4) == MergeProgress(120, 110, 4)


def test_progress_comes_back_with_the_mark_of_its_rules() -> None:
    progress = MergeProgress(100, 60, 3)
    decoded, mark = MergeProgress.decode(progress.encode("{}"))
    assert decoded == progress
    assert mark == MergeProgress.mark("{}") != MergeProgress.mark('{"siblings":"all"}')
