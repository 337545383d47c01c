"""The gang of a file's last test ends with the file."""

from collections.abc import Iterator

import pytest

from tests.builders.trainer.gangs.own_gang import leave_gang


@pytest.fixture(autouse=True, scope="module")
def no_gang_left() -> Iterator[None]:
    """Leave the gang that the tests of a file have left behind."""
    yield
    leave_gang()
