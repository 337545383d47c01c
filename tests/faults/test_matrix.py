"""Faults of each process of a run under load, one by one and in pairs; an audit after each."""

import random
from collections.abc import Callable, Iterator

import pytest

from tests.faults.driver import Driver
from tests.faults.faults import one_of_each, pair
from tests.faults.faulty_run import faulty_run

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
PAIRS = 10
AGAIN = 20


@pytest.fixture(scope="module")
def driver(
    tmp_path_factory: pytest.TempPathFactory, say: Callable[[str], None]
) -> Iterator[Driver]:
    with faulty_run(tmp_path_factory.mktemp("faulty")) as run:
        driver = Driver(run, say)
        driver.start()
        yield driver
        driver.finish()


def test_each_process_is_killed_and_frozen_and_nothing_is_lost(
    driver: Driver, rng: random.Random
) -> None:
    for fault in one_of_each(rng):
        driver.hit([fault])


@pytest.mark.soak
def test_faults_that_coincide_in_pairs_lose_nothing(driver: Driver, rng: random.Random) -> None:
    for _ in range(PAIRS):
        driver.hit(pair(rng))


@pytest.mark.soak
def test_all_processes_are_killed_and_frozen_again_and_again(
    driver: Driver, rng: random.Random
) -> None:
    for _ in range(AGAIN):
        for fault in one_of_each(rng):
            driver.hit([fault])
        driver.hit(pair(rng))
