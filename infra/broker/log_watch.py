"""Bound on the log of the embedded broker, which repeats its errors as long as they last.

Called by `broker.py`. The Java process appends to the file, so that it may be cut under it.
"""

import logging
import os
import threading
from pathlib import Path

_log = logging.getLogger(__name__)
MIB = 1024 * 1024
MOST_BYTES = 8 * MIB
HEAD_BYTES = MIB
TAIL_BYTES = 3 * MIB
_LOOK_EVERY_S = 5.0
_CLOSE_S = 10.0


class LogWatch:
    """Thread that cuts a log which grew too long, from the start of a broker until it is closed."""

    def __init__(self, file: Path, every_s: float = _LOOK_EVERY_S, most: int = MOST_BYTES) -> None:
        self._file, self._every_s, self._most = file, every_s, most
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="broker log watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look once more, and end the thread."""
        self._closing.set()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        closing = False
        while not closing:
            closing = self._closing.wait(self._every_s)
            try:
                cut(self._file, self._most)
            except OSError as error:
                _log.debug("%s cannot be cut: %s", self._file, error)


def cut(file: Path, most: int = MOST_BYTES) -> None:
    """Cut the middle out of a log longer than `most` bytes: its beginning and its end stay.

    In place, so that it needs no room on a full disk. Raises `OSError`.
    """
    size = file.stat().st_size if file.exists() else 0
    if size <= most:
        return
    head_bytes, tail_bytes = most * HEAD_BYTES // MOST_BYTES, most * TAIL_BYTES // MOST_BYTES
    with file.open("r+b") as log:
        head = log.read(head_bytes)
        head = head[: head.rfind(b"\n") + 1] or head
        log.seek(size - tail_bytes)
        tail = log.read()
        tail = tail[tail.find(b"\n") + 1 :]
        left_out = size - len(head) - len(tail)
        log.seek(len(head))
        log.write(b"--- %d bytes of this log were cut out here ---\n" % left_out)
        log.write(tail)
        log.flush()
        os.ftruncate(log.fileno(), log.tell())
