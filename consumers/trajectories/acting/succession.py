"""Succession of managers of one name: the newest goes on, earlier ones end.

Two of one name would end each other's transactions for ever. The order of their announcements on
`fleet` decides. So a manager that stands still can be replaced. It ends when it goes on.
"""

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.schemas.records import ManagerStarted
from seamlessflow.schemas.releases import this_release


class ManagerReplaced(SeamlessFlowError):
    """A newer manager of the same name has started."""

    lasting = True

    def __init__(self, member: str, manager: str, newer: str) -> None:
        self.member = member
        self.manager = manager
        self.newer = newer
        super().__init__(
            f"{manager} ends: {newer} has started under the same name, {member!r} "
            "(SEAMLESSFLOW_MANAGER__SLOT); managers that run side by side have different names"
        )


class Succession:
    """One manager's place among those of its name."""

    def __init__(self, member: str, manager: str) -> None:
        self._member = member
        self._manager = manager
        self._announced = False

    def announcement(self, now_ms: int) -> ManagerStarted:
        """Return the record that ends earlier managers of this name."""
        return ManagerStarted(
            member=self._member,
            manager=self._manager,
            at_ms=now_ms,
            release=this_release().version,
        )

    def apply(self, started: ManagerStarted) -> None:
        """Apply the next announcement. Raises `ManagerReplaced` if it is later than its own."""
        if started.member != self._member:
            return
        if started.manager == self._manager:
            self._announced = True
        elif self._announced:
            raise self.replaced(started.manager)

    def replaced(self, newer: str) -> ManagerReplaced:
        """Return the error that ends this manager for a newer one."""
        return ManagerReplaced(self._member, self._manager, newer)
