"""The limit to restarts of a lost engine."""

from seamlessflow.producers.rollout.hosting import Restarts


def test_so_many_restarts_are_allowed_in_any_such_time() -> None:
    restarts = Restarts(most=2, within_s=600)
    assert [restarts.allow(now_s) for now_s in (0, 1, 2)] == [True, True, False]
    assert restarts.allow(600)
    assert not restarts.allow(600.5)
    assert restarts.allow(601)


def test_none_may_be_allowed() -> None:
    assert not Restarts(most=0).allow(0)
