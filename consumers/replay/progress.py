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

    def encode(self, rules: str) -> str:
        """Return the metadata of a committed offset."""
        return f"{self.covered},{self.rebuild},{self.rebuild_epoch},{self.mark(rules)}"

    @classmethod
    def decode(cls, metadata: str) -> tuple["MergeProgress", str]:
        """Return the progress, and the mark of the rules by which it was made."""
        covered, rebuild, epoch, mark = metadata.split(",")
        return cls(int(covered), int(rebuild), int(epoch)), mark

    @staticmethod
    def mark(rules: str) -> str:
        """Return what stands for the rules: metadata of an offset must be short."""
        return xxhash.xxh3_64_hexdigest(rules.encode())
