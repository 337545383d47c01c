"""A policy's past versions, and the one that a frozen policy shows. A pure fold over `control`.

A version is past if it is the first, or its trainer's first behind a multiple of `every` steps. The
frozen policy numbers the versions it shows itself, so that its numbers only grow. A group may be
admitted to play against one version (its opponent). Called by `scheduler/state/state.py`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from seamlessflow.infra.weights.versions import FEWEST_KEPT, is_past
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

NO_VERSION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PastVersion:
    """A published version of the policy that is shown."""

    version: int
    step: int
    lineage: str
    directory: str
    manifest_sha256: str
    tensors_hash: str
    kind: str

    @classmethod
    def from_record(cls, record: r.WeightsPublished) -> "PastVersion":
        """Return a record's version."""
        return cls(
            version=record.version,
            step=record.step,
            lineage=record.lineage,
            directory=record.directory,
            manifest_sha256=record.manifest_sha256,
            tensors_hash=record.tensors_hash,
            kind=record.kind,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownVersions:
    """The versions that a frozen policy may show, and the present one."""

    policy: str
    """Policy that the versions belong to."""
    every: int
    past: Mapping[int, PastVersion] = field(default_factory=dict)
    """By version, oldest first."""
    recent: tuple[PastVersion, ...] = ()
    """The policy's newest versions, which its trainer keeps, the newest one last."""
    number: int = NO_VERSION
    """The frozen policy's newest version number."""
    version: int = NO_VERSION
    """The other policy's version shown under that number."""
    loaded: Mapping[str, int] = field(default_factory=dict)
    """Version that each of its workers serves."""

    @property
    def is_served(self) -> bool:
        """True if it has workers and they all serve the shown version."""
        return bool(self.loaded) and set(self.loaded.values()) == {self.number}

    @property
    def newest(self) -> PastVersion | None:
        """The other policy's newest version, which need not be a past one."""
        return self.recent[-1] if self.recent else None

    def find(self, version: int) -> PastVersion | None:
        """Return a past version or one of the newest, or None for any other."""
        return self.past.get(version) or next(
            (each for each in self.recent if each.version == version), None
        )


def apply(shown: ShownVersions, record: Record, name: str) -> ShownVersions:
    """Return what the policy `name` shows after a `control` record."""
    match record:
        case r.WeightsPublished() if record.policy == shown.policy:
            return _published(shown, PastVersion.from_record(record))
        case r.WeightsPublished() if record.policy == name:
            return _shown(shown, record)
        case r.RoleAcquired(role="rollout") if record.policy == name:
            version = NO_VERSION if record.version is None else record.version
            return replace(shown, loaded={**shown.loaded, record.worker: version})
        case r.WeightsLoaded() if record.policy == name:
            return replace(shown, loaded={**shown.loaded, record.worker: record.version})
        case r.RoleAcquired() | r.RoleReleased(role="rollout") | r.WorkerLost(process="rollout"):
            return _without(shown, record.worker)
    return shown


def _published(shown: ShownVersions, version: PastVersion) -> ShownVersions:
    before = shown.newest
    after = replace(shown, recent=(*shown.recent, version)[-FEWEST_KEPT:])
    if not is_past(version.step, None if before is None else before.step, shown.every):
        return after
    return replace(after, past={**shown.past, version.version: version})


def _shown(shown: ShownVersions, record: r.WeightsPublished) -> ShownVersions:
    if record.version < shown.number:
        return shown
    version = next(_with_manifest(shown, record.manifest_sha256), NO_VERSION)
    if record.version == shown.number and version != shown.version:
        version = NO_VERSION  # two schedulers showed different versions: it is shown anew
    return replace(shown, number=record.version, version=version)


def _with_manifest(shown: ShownVersions, manifest_sha256: str) -> Iterator[int]:
    for version in (*shown.recent, *shown.past.values()):
        if version.manifest_sha256 == manifest_sha256:
            yield version.version


def _without(shown: ShownVersions, worker: str) -> ShownVersions:
    if worker not in shown.loaded:
        return shown
    return replace(
        shown, loaded={name: each for name, each in shown.loaded.items() if name != worker}
    )
