"""Directory of an embedded broker: its files, and whether a broker uses it.

    server.properties   written anew at each start
    broker.log          output of the Java process, appended to at each start; its middle is cut
                        out where it grows beyond 8 MiB (`watches.py`)
    log/                records and metadata, written by Kafka

Called by `seamlessflow.infra.broker.broker`.
"""

import base64
import fcntl
import shutil
import uuid
from collections.abc import Mapping
from errno import EILSEQ
from pathlib import Path

from seamlessflow.infra.broker.properties import LOG_DIR, as_text, properties


class BrokerStorage:
    """Directory of one broker."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.log_file = self.directory / "broker.log"
        self.properties_file = self.directory / "server.properties"
        self._kafka = self.directory / LOG_DIR

    @property
    def formatted(self) -> bool:
        """True once Kafka has formatted the directory."""
        return (self._kafka / "meta.properties").exists()

    @property
    def in_use(self) -> bool:
        """True while a broker uses the directory. The lock is Kafka's and ends with its process."""
        try:
            with (self._kafka / ".lock").open("r+b") as stream:
                fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def write_properties(
        self, port: int, controller_port: int, others: Mapping[str, str | int]
    ) -> None:
        """Write the settings of the next start; `others` are added or replace them."""
        values = {**properties(port, controller_port), **others}
        self.properties_file.write_text(as_text(values), encoding="utf-8")

    def make(self) -> None:
        """Make the directory, for this user only, if it is missing. Raises `OSError`."""
        if not _is_text(self.directory):
            raise OSError(EILSEQ, "a byte of its name is no UTF-8, which Java needs")
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def remove(self) -> None:
        """Delete it with all records."""
        shutil.rmtree(self.directory, ignore_errors=True)


def _is_text(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def new_cluster_id() -> str:
    """Return a random UUID in Kafka's form."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
