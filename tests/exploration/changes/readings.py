"""The ways in which a process reads before it acts.

Reading alone changes nothing that others see, so it is a part of the act that follows: a state in
which a process has only read is not told apart from the one before. The order of both topics and
the place at which it stops are a choice each, so readers lag as far as there are records.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, cast

from seamlessflow.schemas import records as r
from tests.exploration.actors import Process

Of = TypeVar("Of", bound=Process)
_MOST = 200_000
_SPECIAL = r.WeightsPublished | r.PolicyWeights | r.StepStarted
"""Records that may change something later although they change nothing now."""
_known: dict[int, tuple[Process, Sequence[Process]]] = {}


def readings(actor: Of, acts: Callable[[Of], bool], read: Callable[[Of, str], Of]) -> list[Of]:
    """Return the process as it acts, for each way to read before.

    `acts` says that it can act, and `read` makes it read a record of a topic.
    """
    entry = _known.get(id(actor))
    if entry is not None:
        return cast(list[Of], entry[1])
    ways = [*_all(actor, acts, read)]
    if len(_known) > _MOST:
        _known.clear()
    _known[id(actor)] = (actor, ways)
    return ways


def _all(actor: Of, acts: Callable[[Of], bool], read: Callable[[Of, str], Of]) -> Iterator[Of]:
    waiting, forms = [actor], {actor.form}
    while waiting:
        current = waiting.pop()
        further = [
            (topic, read(current, topic))
            for topic in ("control", "fleet")
            if getattr(current, topic)
        ]
        inert = [after for topic, after in further if _is_inert(current, after, topic)]
        if not inert and acts(current):
            yield current
        for after in inert[:1] or [after for _, after in further]:
            if after.form not in forms:
                forms.add(after.form)
                waiting.append(after)


def without_inert(actor: Of, read: Callable[[Of, str], Of]) -> Of:
    """Return the process after it read what changes nothing, so that nothing waits behind it."""
    while True:
        for topic in ("control", "fleet"):
            if getattr(actor, topic) and _is_inert(actor, after := read(actor, topic), topic):
                actor = after
                break
        else:
            return actor


def _is_inert(before: Of, after: Of, topic: str) -> bool:
    """Return True for a record older than what is known: it changes nothing, at no time."""
    return after.read_form == before.read_form and not isinstance(
        getattr(before, topic)[0].record, _SPECIAL
    )


def words(before: Process, after: Process) -> str:
    """Return what was read in between, for the name of a transition."""
    kinds = [
        type(letter.record).__name__
        for topic in ("control", "fleet")
        for letter in getattr(before, topic)[
            : len(getattr(before, topic)) - len(getattr(after, topic))
        ]
    ]
    return f" reads {', '.join(kinds)} and" if kinds else ""
