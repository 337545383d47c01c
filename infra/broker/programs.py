"""Java programs of Kafka that an embedded broker needs: the server and the formatting of storage.

Called by `seamlessflow.infra.broker.broker`.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from seamlessflow.infra.broker.jars import class_path, start_archive
from seamlessflow.infra.broker.jvm import environment, java, writing_archive
from seamlessflow.infra.errors import SettingsRejected

FORMAT_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class KafkaPrograms:
    """Checked jars and the Java settings of one broker; `archive_to_write` is usually None."""

    jars: list[Path]
    archive: Path
    archive_to_write: Path | None
    heap_mb: int
    short_lived: bool

    @classmethod
    def from_cache(
        cls, cache: Path, *, archive_to_write: Path | None, heap_mb: int, short_lived: bool
    ) -> "KafkaPrograms":
        """Return the programs of the cached jars.

        Raises `JarRejected`, `JarsUnavailable`, and `SettingsRejected` for a cache that Java cannot
        name.
        """
        whole = cache.absolute()  # the programs run in the directory of their broker
        if os.pathsep in str(whole):
            reason = f"{whole} has a colon, which Java takes for the border between two directories"
            raise SettingsRejected("SEAMLESSFLOW_CACHE", reason)
        jars, archive = class_path(whole), start_archive(whole)
        return cls(jars, archive, archive_to_write, heap_mb, short_lived)

    def server(self, properties_file: Path) -> list[str]:
        """Return the command that runs a broker until SIGTERM, in the directory of that file."""
        command = self._java("kafka.Kafka", str(properties_file))
        if self.archive_to_write:
            return writing_archive(command, self.archive_to_write)
        return command

    def format(self, properties_file: Path, cluster_id: str) -> str | None:
        """Format the storage of a new cluster; return the end of the output if that failed."""
        config = f"--config={properties_file}"
        command = self._java(
            "kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", config
        )
        try:
            done = subprocess.run(  # nosec B603 # our own Java, no shell
                command,
                cwd=properties_file.parent,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=FORMAT_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired as error:
            return str(error)
        return done.stdout[-4000:] if done.returncode else None

    def _java(self, main_class: str, *arguments: str) -> list[str]:
        return java(
            self.jars,
            main_class,
            *arguments,
            heap_mb=self.heap_mb,
            short_lived=self.short_lived,
            archive=self.archive,
        )
