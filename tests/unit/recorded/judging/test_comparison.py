"""Comparisons of a judge with another one."""

from seamlessflow.recorded.judging.comparison import JudgeBounds, JudgedAnew, compared


def judged(group: str, before: float | None, after: float | None, reason: str = "") -> JudgedAnew:
    return JudgedAnew(f"{group}.0", group, None if reason else 1.0, reason, before, after)


def group(name: str, before: list[float], after: list[float]) -> list[JudgedAnew]:
    return [judged(name, old, new) for old, new in zip(before, after, strict=True)]


def test_the_same_rewards_change_nothing() -> None:
    same = compared(group("a", [0, 1, 1], [0, 1, 1]))
    assert (same.changed, same.signs, same.lost, same.gained) == (0, 0, 0, 0)
    assert (same.sessions, same.groups, same.mean_before, same.mean_after) == (3, 1, 2 / 3, 2 / 3)


def test_other_rewards_with_the_same_order_turn_no_advantage() -> None:
    scaled = compared(group("a", [0, 1], [0.25, 0.5]))
    assert (scaled.changed, scaled.signs) == (2, 0)


def test_advantages_that_turn_are_counted_by_group() -> None:
    turned = compared([*group("a", [0, 1], [1, 0]), *group("b", [0, 1], [0, 1])])
    assert (turned.signs, turned.sign_share) == (2, 0.5)


def test_groups_that_lose_or_gain_their_signal_are_counted() -> None:
    groups = [
        *group("lost", [0, 1], [1, 1]),
        *group("gained", [1, 1], [0, 1]),
        *group("kept", [0, 1], [0, 0.5]),
    ]
    comparison = compared(groups)
    assert (comparison.groups, comparison.lost, comparison.gained) == (2, 1, 1)
    assert comparison.lost_share == 0.5


def test_sessions_that_do_not_count_under_both_are_left_out() -> None:
    sessions = [judged("a", None, 1.0), judged("a", 1.0, None, reason="prose"), judged("a", 1, 1)]
    comparison = compared(sessions)
    assert (comparison.sessions, comparison.left_out, comparison.unrewarded) == (1, 1, 1)
    assert comparison.unrewarded_share == 1 / 3


def test_nothing_is_compared_with_nothing() -> None:
    empty = compared([])
    assert (empty.sessions, empty.sign_share, empty.lost_share, empty.mean_after) == (0, 0, 0, 0)


def test_a_bound_is_exceeded_by_more_than_it_says() -> None:
    comparison = compared([*group("a", [0, 1], [1, 0]), *group("b", [0, 1], [0, 1])])
    assert list(JudgeBounds().exceeded(comparison)) == []
    assert list(JudgeBounds(signs=0.5, lost=0.0).exceeded(comparison)) == []
    (line,) = JudgeBounds(signs=0.4).exceeded(comparison)
    assert line == "advantages with another sign: 50.0%, more than 40.0%"
