"""Finish of a run: all its policies made their steps, so nothing is under way any more. Pure.

A run that is resumed for further steps starts a new lineage, and is not finished until its end.
"""

from dataclasses import dataclass, field

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record


@dataclass(slots=True)
class Finish:
    """Fold of `control`."""

    _of_policies: dict[str, bool] = field(default_factory=dict)

    def apply(self, record: Record) -> None:
        """Fold in a record."""
        match record:
            case r.LineageStarted():
                self._of_policies[record.policy] = False
            case r.RunFinished(policy=""):  # older releases named no policy, and had one
                self._of_policies = dict.fromkeys(self._of_policies or {""}, True)
            case r.RunFinished():
                self._of_policies[record.policy] = True

    @property
    def reached(self) -> bool:
        """True if the newest lineage of each policy has ended with its last step."""
        return bool(self._of_policies) and all(self._of_policies.values())
