"""Managers of one name, and the order of their announcements."""

import pytest

from seamlessflow.consumers.trajectories.manager import ManagerReplaced, Succession


def test_a_later_announcement_of_the_name_ends_a_manager_and_an_earlier_one_does_not() -> None:
    old, new, other = Succession("0", "old"), Succession("0", "new"), Succession("1", "other")
    log = [succession.announcement(0) for succession in (old, new, other)]
    for started in log:
        new.apply(started)
        other.apply(started)
    old.apply(log[0])

    with pytest.raises(ManagerReplaced, match="old ends: new has started under the same name, '0'"):
        old.apply(log[1])
