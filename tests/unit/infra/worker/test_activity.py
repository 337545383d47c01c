"""Accounts of a worker's time."""

from seamlessflow.infra.worker.activity import ActivityAccount, PhaseTimes


def test_time_and_tokens_are_counted_since_the_last_report() -> None:
    account = ActivityAccount("worker-0", "rollout", 1_000)
    account.enter("loading", 1_100)
    account.enter("idle", 1_400)
    account.enter("decoding", 1_500)
    account.enter("decoding", 1_700)
    account.add_tokens(40)
    first = account.report("inc", 2_000)
    assert first is not None
    assert (first.from_ms, first.at_ms) == (1_000, 2_000)
    assert (first.loading_ms, first.idle_ms, first.decoding_ms) == (300, 100, 500)
    assert (first.process, first.incarnation, first.tokens) == ("rollout", "inc", 40)
    assert first.computing_ms is None
    account.add_tokens(15)
    second = account.report("inc", 2_500)
    assert second is not None
    assert (second.from_ms, second.decoding_ms, second.tokens) == (2_000, 500, 15)
    assert second.idle_ms == second.loading_ms == 0


def test_passes_are_parts_of_the_time_spent_decoding() -> None:
    account = ActivityAccount("worker-0", "rollout", 0)
    account.enter("decoding", 0)
    account.add_passes(0.25, 0.5)
    account.add_passes(0.5, 0)
    first, second = account.report("inc", 2_000), account.report("inc", 4_000)
    assert first is not None and (first.full_batch_ms, first.recomputing_ms) == (750, 500)
    assert second is not None and (second.full_batch_ms, second.recomputing_ms) == (0, 0)
    account.add_passes(0.9, 0.3)
    short = account.report("inc", 5_000)
    assert short is not None and (short.full_batch_ms, short.recomputing_ms) == (700, 300)


def test_without_a_role_there_is_nothing_to_report() -> None:
    account = ActivityAccount("worker-0", "rollout", 1_000)
    assert account.report("inc", 3_000) is None
    account.enter("idle", 4_000)
    later = account.report("inc", 5_000)
    assert later is not None
    assert (later.from_ms, later.idle_ms) == (3_000, 1_000)


def test_what_is_reported_adds_up_to_the_time_a_role_was_held() -> None:
    account = ActivityAccount("w", "train", 0)
    assert account.report("i", 100) is None
    account.enter("loading", 200)
    account.enter("waiting", 230)
    account.enter("training", 250)
    account.enter("waiting", 310)
    account.enter("idle", 330)
    account.add_tokens(7)
    record = account.report("i", 400)
    assert record is not None
    assert (record.loading_ms, record.training_ms, record.idle_ms) == (30, 100, 70)
    assert record.computing_ms == 60, "the part of a step that the process computed itself"
    assert (record.from_ms, record.at_ms, record.tokens) == (100, 400, 7)
    later = account.report("i", 450)
    assert later is not None and (later.idle_ms, later.tokens, later.from_ms) == (50, 0, 400)


def test_a_phase_ends_where_the_next_begins_and_may_come_again() -> None:
    times = PhaseTimes(iter([10.0, 10.002, 10.0025, 10.1025]).__next__)
    for phase in ("wake", "load", "wake"):
        times.end(phase)
    assert times.by_name == {"wake": 102.0, "load": 0.5}
    assert times.total_ms == 102
