"""The directory of an embedded broker: what is where, who is using it, and its log file.

    server.properties   written anew at each start
    broker.log          what the broker says, appended to at each start
    log/                Kafka's own: the records and the metadata

Called by `infra.broker.broker`.
"""

import base64
import fcntl
import shutil
import uuid
from pathlib import Path

from infra.broker.properties import as_text, properties


class BrokerStorage:
    """One broker's directory; made when first used."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.log_file = self.directory / "broker.log"
        self.properties_file = self.directory / "server.properties"
        self._kafka = self.directory / "log"

    @property
    def formatted(self) -> bool:
        """Whether Kafka has laid out its files here."""
        return (self._kafka / "meta.properties").exists()

    @property
    def in_use(self) -> bool:
        """Whether a broker runs over it. The lock is Kafka's and dies with its process."""
        try:
            with (self._kafka / ".lock").open("r+b") as stream:
                fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def write_properties(self, port: int, controller_port: int) -> None:
        """Writes the settings of the next start."""
        values = properties(self._kafka, port, controller_port)
        self.properties_file.write_text(as_text(values))

    def make(self) -> None:
        """Makes the directory, for this user only, if it is not there."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def remove(self) -> None:
        """Deletes it with all records."""
        shutil.rmtree(self.directory, ignore_errors=True)


def new_cluster_id() -> str:
    """A random UUID as Kafka spells it."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
