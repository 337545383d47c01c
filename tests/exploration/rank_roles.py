"""The roles of a training process together with its view of the gang, as its loop keeps both."""

from dataclasses import dataclass, field, replace

from seamlessflow.schemas.records import Record
from seamlessflow.trainer.roles.gang import GangWatch
from seamlessflow.trainer.roles.roles import TrainerRoles


@dataclass(slots=True)
class RankRoles(TrainerRoles):
    """Both folds of `control`."""

    gang: GangWatch = field(default_factory=GangWatch)
    ranks: int = field(default=1, kw_only=True)
    """Number of training processes of a gang."""

    def apply(self, record: Record) -> None:
        """Fold one record into both."""
        TrainerRoles.apply(self, record)
        self.gang.apply(record)
        if self.ranks == 1:
            # As in `GangWatch.check`: the log does not break a gang of one.
            self.gang.broken_by = ""

    def copied(self) -> "RankRoles":
        """Return roles that may be changed."""
        members = dict(self.gang.members)
        return replace(self, gang=replace(self.gang, members=members))
