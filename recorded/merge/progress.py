"""Progress of a replay in one partition of `sessions`, as it is committed with its output. Pure."""

from dataclasses import dataclass

import xxhash


@dataclass(frozen=True, slots=True)
class MergeProgress:
    """Offsets of `sessions` that say where a replay goes on."""

    covered: int = 0
    """Sessions that ended before this offset are written."""
    rebuild: int = 0
    """First event of the oldest session that was open there."""
    rebuild_epoch: int = -1
    """Epoch of the newest claim before `rebuild`."""

    def reached(self, position: int, rebuild: int, rebuild_epoch: int) -> "MergeProgress":
        """Return the progress of a replay that went on from here and came to `position`.

        What an earlier one covered stays so until this one has read as far.
        """
        return MergeProgress(max(self.covered, position), rebuild, rebuild_epoch)

    def encode(self, content: str) -> str:
        """Return the metadata of a committed offset."""
        return f"{self.covered},{self.rebuild},{self.rebuild_epoch},{self.mark(content)}"

    @classmethod
    def decode(cls, metadata: str) -> tuple["MergeProgress", str]:
        """Return the progress, and the mark of the replay that made it."""
        covered, rebuild, epoch, mark = metadata.split(",")
        return cls(int(covered), int(rebuild), int(epoch)), mark

    @staticmethod
    def mark(content: str) -> str:
        """Return what stands for rules and selection: metadata of an offset must be short."""
        return xxhash.xxh3_64_hexdigest(content.encode())
