"""Silence of a process that should give signs of life."""

from collections.abc import Iterable

from seamlessflow.processes.watchdog import ABORT_GRACE_S, Act, Silence

LIMIT_S = 10


def acts(looks: Iterable[tuple[float, bool]]) -> list[tuple[float, Act]]:
    """Return what is done at each look, given its time and if it found a sign."""
    silence = Silence()
    done: list[tuple[float, Act]] = []
    for now_s, signed in looks:
        after = silence.after_look(signed, now_s)
        if (act := after.act(silence, LIMIT_S)) is not Act.NOTHING:
            done.append((now_s, act))
        silence = after
    return done


def test_a_silent_process_is_asked_for_its_threads_and_then_killed_each_once() -> None:
    looks = [(100.0 + second, second == 0) for second in range(30)]

    assert acts(looks) == [(110, Act.ABORT), (110 + ABORT_GRACE_S, Act.KILL)]


def test_a_process_that_signs_now_and_then_is_left_alone() -> None:
    assert not acts((float(second), second % 9 == 0) for second in range(100))


def test_a_process_that_never_signed_is_not_watched() -> None:
    assert not acts((float(second), False) for second in range(100))


def test_time_in_which_the_launcher_stood_still_itself_does_not_count() -> None:
    assert not acts([(0, True), (1, False), (500, False), (501, False)])
