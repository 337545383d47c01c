"""This project's releases, each with the schema version in which it writes each record.

`manifests/` has a file for each release, named by its version. The newest is these sources'
release. `python -m seamlessflow.schemas.generate` keeps it up to date. The others never change.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


class UnknownRelease(ValueError):
    """No release has this version; `versions` are the existing ones, the oldest first."""

    def __init__(self, version: str, versions: tuple[str, ...]) -> None:
        self.version = version
        self.versions = versions
        super().__init__(f"release {version} is unknown here; known are {', '.join(versions)}")


@dataclass(frozen=True, slots=True)
class SchemaRelease:
    """One release."""

    version: str
    fingerprints: Mapping[str, str]
    """Schema fingerprints by record name."""

    def changed_since(self, earlier: "SchemaRelease") -> list[str]:
        """Return the records that this release writes unlike an earlier one, or that are new."""
        before = earlier.fingerprints
        return [
            name
            for name, fingerprint in self.fingerprints.items()
            if before.get(name) != fingerprint
        ]


@cache
def releases() -> tuple[SchemaRelease, ...]:
    """Return all releases, the oldest first; the last one belongs to these sources."""
    listed = [
        SchemaRelease(path.name.removesuffix(".json"), json.loads(path.read_text()))
        for path in (files("seamlessflow.schemas") / "manifests").iterdir()
    ]
    return tuple(sorted(listed, key=lambda release: order(release.version)))


def this_release() -> SchemaRelease:
    """Return the release of these sources."""
    return releases()[-1]


def release_named(version: str) -> SchemaRelease:
    """Return a version's release. Raises `UnknownRelease`."""
    for release in releases():
        if release.version == version:
            return release
    raise UnknownRelease(version, tuple(release.version for release in releases()))


def order(version: str) -> tuple[int, ...]:
    """Return a sort key for versions. A text that is no version is older than all others."""
    parts = version.split(".")
    return tuple(map(int, parts)) if all(map(str.isdecimal, parts)) else ()
