"""Time spent, as `WorkerUsage` tells it."""

from producers.rollout.roles.usage import Usage


def test_time_is_counted_by_activity_and_only_since_the_last_report() -> None:
    usage = Usage("worker-0", 1_000)
    usage.now("loading", 1_100)
    usage.now("idle", 1_400)
    usage.now("decoding", 1_500)
    usage.now("decoding", 1_700)
    first = usage.report("inc", 40, 2_000)
    assert first is not None
    assert (first.from_ms, first.at_ms) == (1_000, 2_000)
    assert (first.loading_ms, first.idle_ms, first.decoding_ms) == (300, 100, 500)
    assert (first.process, first.incarnation, first.tokens) == ("rollout", "inc", 40)
    second = usage.report("inc", 55, 2_500)
    assert second is not None
    assert (second.from_ms, second.decoding_ms, second.tokens) == (2_000, 500, 15)
    assert second.idle_ms == second.loading_ms == 0


def test_without_a_role_there_is_nothing_to_report() -> None:
    usage = Usage("worker-0", 1_000)
    assert usage.report("inc", 0, 3_000) is None
    usage.now("idle", 4_000)
    later = usage.report("inc", 0, 5_000)
    assert later is not None
    assert (later.from_ms, later.idle_ms) == (3_000, 1_000)
