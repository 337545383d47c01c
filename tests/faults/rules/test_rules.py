"""A run with rules of samples, stops, selection and stored sessions, whose processes are hit."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.driver import Driver
from tests.faults.faults import one_of_each, pair
from tests.faults.faulty_run import faulty_run
from tests.faults.rules.recorded import recorded_rules
from tests.faults.rules.settings import RULES

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
PAIRS = 3


def test_rules_of_all_kinds_choose_the_same_whatever_fails(
    tmp_path: Path, rng: random.Random, say: Callable[[str], None]
) -> None:
    with faulty_run(tmp_path, changes=RULES) as run:
        driver = Driver(run, say)
        driver.start()
        for fault in one_of_each(rng):
            driver.hit([fault])
        for _ in range(PAIRS):
            driver.hit(pair(rng))
        driver.finish()
        recorded = recorded_rules(run.kafka)
    counts = recorded.counts()
    for what, count in counts.items():
        say(f"{count} {what}")
    assert list(recorded.faults()) == []
    assert [what for what, count in counts.items() if not count] == []
