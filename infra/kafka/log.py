"""librdkafka's log lines through `logging`, so that an outage is not logged at every retry.

A client hands its lines over when it is polled. Without configured logging, as in the command
line, nothing is shown: errors that matter to users are raised.
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
class _Shown:
    at_s: float
    left_out: int = 0


class RateLimit(logging.Filter):
    """Filter that passes one message of a kind in `every_s`, and says how many it left out.

    Messages are of one kind if they differ only in numbers or in the client.
    """

    def __init__(
        self, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._every_s = every_s
        self._clock = clock
        self._shown: dict[str, _Shown] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the message is shown."""
        kind = _kind(record)
        now_s = self._clock()
        last = self._shown.get(kind)
        if last is not None and now_s - last.at_s < self._every_s:
            last.left_out += 1
            return False
        self._shown[kind] = _Shown(now_s)
        if last is not None and last.left_out:
            record.msg = f"{record.getMessage()} ({last.left_out} more like it were left out)"
            record.args = ()
        return True


@cache
def logger(name: str = NAME) -> logging.Logger:
    """Return the logger with that name; by default the one for all clients in the process."""
    log = logging.getLogger(name)
    log.addFilter(RateLimit())
    log.addHandler(logging.NullHandler())
    return log


def _kind(record: logging.LogRecord) -> str:
    """Return the message without client, numbers and the duration at its end.

    For this project's own messages, return the text before the facts are put in.
    """
    if record.name != NAME:
        return str(record.msg)
    facility, _, text = record.args if isinstance(record.args, tuple) else ("", "", "")
    return _NUMBER.sub("#", _AFTER.sub("", f"{facility} {text}"))
