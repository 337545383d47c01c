"""Machine setup for the embedded broker: fetches its jars and makes a start-up archive.

The archive (64 MB, in the cache beside the jars) holds loaded classes. With it a broker starts
three times as fast (see `programs.py`). Without it, or if it does not fit, everything works too.

    python -m seamlessflow.infra.broker.archive   run by `scripts/setup`
"""

import os
import sys
from pathlib import Path

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.jars import class_path, start_archive
from seamlessflow.infra.broker.programs import JavaOptions
from seamlessflow.infra.errors import SeamlessFlowError


def prepare(cache: Path | None = None) -> None:
    """Fetch the jars and make the archive, unless both exist. Raises what `Broker.start` raises."""
    class_path(cache)
    archive = start_archive(cache)
    if archive.exists():
        return
    print("preparing Kafka's start, about 10 s, once", file=sys.stderr)
    archive.parent.mkdir(parents=True, exist_ok=True)
    scratch = archive.with_suffix(f".{os.getpid()}")
    try:
        java = JavaOptions(short_lived=True, cache=cache, archive_to_write=scratch)
        with Broker(None, java=java, watches=False):
            pass
        if scratch.exists():
            scratch.replace(archive)
    finally:
        scratch.unlink(missing_ok=True)


if __name__ == "__main__":
    try:
        prepare()
    except SeamlessFlowError as error:
        sys.exit(str(error))
