"""Offers from ended sessions: places where new sessions may begin, and counts of samples.

A pure fold over `control`. A session in a group that got ready offers each of its turns except the
first, once; sessions that are forks themselves offer none. The newest `MOST_OFFERS` sessions are
kept. Called by `scheduler/state/state.py`; `scheduler/sampling/forks.py` chooses among them.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from seamlessflow.scheduler.state.ledger import AdmittedGroup
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

MOST_OFFERS = 256
"""Number of sessions kept, so that a snapshot of the state stays small."""
_FIRST_TURN = 2
"""A session that goes on from its first prompt would be a sample like any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An ended session, with the turns at which others may go on from it."""

    session_id: str
    task_id: str
    parent_return: float
    turns: int
    """Number of its sampled turns."""
    length: int
    """Tokens that the policy sampled in it."""
    first_offset: int
    """Offset of its first event on `sessions`."""
    taken: tuple[int, ...] = ()
    """Turns from which a group goes on already."""

    @property
    def free_turns(self) -> Collection[int]:
        """The numbers of the turns on offer; turns are numbered from 1 in log order."""
        return [turn for turn in range(_FIRST_TURN, self.turns + 1) if turn not in self.taken]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """All offers, and counts of groups for training."""

    sessions: tuple[Offer, ...] = ()
    """The newest sessions that offer places, the newest last."""
    samples: int = 0
    """Samples of all admitted groups, as far as they are recorded."""
    groups: int = 0
    forked_samples: int = 0
    """Samples of the groups that go on from an offer."""
    forked_groups: int = 0


def apply(offers: Offers, record: Record, group: AdmittedGroup | None) -> Offers:
    """Return the offers after a `control` record.

    `group`: the training group that the record admits or gives its first result; else None.
    """
    if group is None:
        return offers
    match record:
        case r.GroupAdmitted():
            return _admitted(offers, record)
        case r.GroupReady() if not group.forked:
            return _offered(offers, record, group)
    return offers


def _admitted(offers: Offers, record: r.GroupAdmitted) -> Offers:
    size = record.group_size
    counted = replace(offers, samples=offers.samples + size, groups=offers.groups + 1)
    place = record.fork_at
    if place is None:
        return counted
    sessions = (_without(offer, place) for offer in offers.sessions)
    return replace(
        counted,
        sessions=tuple(offer for offer in sessions if offer.free_turns),
        forked_samples=offers.forked_samples + size,
        forked_groups=offers.forked_groups + 1,
    )


def _without(offer: Offer, place: r.ParentPlace) -> Offer:
    if offer.session_id != place.session_id:
        return offer
    return replace(offer, taken=(*offer.taken, place.turn))


def _offered(offers: Offers, record: r.GroupReady, group: AdmittedGroup) -> Offers:
    if not record.first_offsets:  # from a release that recorded less
        return offers
    more = (
        Offer(
            session_id=session_id,
            task_id=group.task_id,
            parent_return=record.returns[number],
            turns=record.turns[number],
            length=record.lengths[number],
            first_offset=record.first_offsets[number],
        )
        for number, session_id in enumerate(record.sessions)
    )
    usable = [offer for offer in more if offer.free_turns]
    return replace(offers, sessions=(*offers.sessions, *usable)[-MOST_OFFERS:])
