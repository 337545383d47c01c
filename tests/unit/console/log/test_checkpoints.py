"""Any moment is near a copy of the fold."""

import random

import pytest

from seamlessflow.console.log.checkpoints import Checkpoints, folded_on
from seamlessflow.infra.kafka.client import Received
from tests.builders.console.memory_log import items_of
from tests.builders.records import control


class Seen:
    """A fold that keeps the offsets."""

    def __init__(self, offsets: tuple[int, ...] = ()) -> None:
        self.offsets = list(offsets)

    def apply(self, item: Received) -> None:
        self.offsets.append(item.offset)

    def copy(self) -> "Seen":
        return Seen(tuple(self.offsets))


ITEMS = items_of("control", [control.claimed()] * 500)


def folded(every: int, most: int) -> Checkpoints[Seen]:
    checkpoints = Checkpoints(Seen(), every, most)
    for item in ITEMS:
        checkpoints.apply(item)
    return checkpoints


@pytest.mark.parametrize("every, most", [(1, 4), (7, 16), (32, 256), (1_000, 8)])
def test_a_copy_and_the_records_behind_it_are_the_fold_from_the_beginning(
    every: int, most: int, rng: random.Random
) -> None:
    checkpoints = folded(every, most)
    for end in [0, 500, *(rng.randrange(500) for _ in range(50))]:
        start, state = checkpoints.nearest(end)
        assert start <= end
        folded_on(state, ITEMS[start:end])
        assert state.offsets == list(range(end))


def test_copies_stay_few_and_stand_wider_apart() -> None:
    checkpoints = folded(1, 16)
    assert checkpoints.copies <= 16
    assert checkpoints.every == 32
    distances = {end - checkpoints.nearest(end)[0] for end in range(500)}
    assert max(distances) < 32


def test_a_state_that_was_asked_for_is_the_nearest_to_the_next_question() -> None:
    checkpoints = folded(1_000, 8)
    start, state = checkpoints.nearest(300)
    assert start == 0
    checkpoints.keep(300, folded_on(state, ITEMS[:300]))
    start, state = checkpoints.nearest(301)
    assert (start, len(state.offsets)) == (300, 300)
    state.apply(ITEMS[300])
    assert len(checkpoints.nearest(300)[1].offsets) == 300
