"""Names of sockets in files: the kernel takes 107 bytes, and directories may be longer.

Used by both sides of a sign of life.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LONGEST_BYTES = 107
"""Linux, unix(7): the 108 of `sun_path` without the zero at their end."""


@contextmanager
def kernel_name(path: Path) -> Iterator[str]:
    """Yield a name of `path` that is short enough, for one call. Raises `OSError`.

    That of a long path leads through its directory, opened by this process.
    """
    if len(os.fsencode(path)) <= _LONGEST_BYTES:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
