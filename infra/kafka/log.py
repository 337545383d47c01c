"""What librdkafka has to say, through `logging`: an outage is told now and then, not at every try.

A client hands over its lines when it is polled. Where nobody set up logging, as in commands for
people, nothing is shown: what matters to them is raised.
"""

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

NAME = "librdkafka"
EVERY_S = 30.0
_NUMBER = re.compile(r"\d+")
_AFTER = re.compile(r" \(after .*")


@dataclass(slots=True)
class _Told:
    at_s: float
    left_out: int = 0


class Seldom(logging.Filter):
    """Lets one message of a kind through in `every_s`, with how many were left out before it.

    Messages that differ in numbers or in the client that speaks are of one kind.
    """

    def __init__(
        self, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._every_s = every_s
        self._clock = clock
        self._told: dict[str, _Told] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the message is shown."""
        kind, now_s = _kind(record), self._clock()
        last = self._told.get(kind)
        if last is not None and now_s - last.at_s < self._every_s:
            last.left_out += 1
            return False
        self._told[kind] = _Told(now_s)
        if last is not None and last.left_out:
            record.msg = f"{record.getMessage()} ({last.left_out} more like it were left out)"
            record.args = ()
        return True


@cache
def logger() -> logging.Logger:
    """Where every client of the process writes."""
    found = logging.getLogger(NAME)
    found.addFilter(Seldom())
    found.addHandler(logging.NullHandler())
    return found


def _kind(record: logging.LogRecord) -> str:
    """Clients write facility, client, text; at its end how long the try took and the like."""
    facility, _, text = record.args if isinstance(record.args, tuple) else ("", "", "")
    return _NUMBER.sub("#", _AFTER.sub("", f"{facility} {text}"))
