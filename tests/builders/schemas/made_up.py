"""Two made-up releases before this one, by what they lack, and readers of their time.

The first lacks a record, fields of records, and a field of a record within another one. The second
lacks nothing but fields that a pinned writer may leave out.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Set
from io import BytesIO
from pathlib import Path

from fastavro import schemaless_reader, schemaless_writer

from seamlessflow.schemas.codec import HEADER_BYTES, MARKER, UnknownSchema, decoder_of
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.registry import (
    Schema,
    SchemaVersions,
    parsed,
    raw_schemas,
    schema_fingerprint,
    schema_versions,
    self_contained,
)
from seamlessflow.schemas.releases import SchemaRelease, this_release
from seamlessflow.schemas.written import EncodeRecord, encoder_as
from tests.paths import ROOT

FIRST, SECOND = "0.0.1", "0.0.2"
_DROPPABLE = {"WorkerHeartbeat": {"release"}, "GatewayHeartbeat": {"release"}}
_LACKS: Mapping[str, Mapping[str, Set[str]]] = {
    FIRST: {
        **_DROPPABLE,
        "OpenSession": {"idempotency_key"},
        "RewardAssigned": {"idempotency_key"},
        "SessionOpened": {"idempotency_key"},
        "TrajectoryNode": {"logprob_temperature"},
        "TurnStarted": {"control"},
        "GenerateTurn": {"control"},
    },
    SECOND: _DROPPABLE,
}
_WITHOUT = {FIRST: {"TurnUndelivered", "ArmSnapshot", "TurnControl"}, SECOND: set[str]()}


def _raw(lacks: Mapping[str, Set[str]], without: Set[str]) -> dict[str, Schema]:
    made = {name: schema for name, schema in raw_schemas().items() if name not in without}
    for name, names in lacks.items():
        fields = made[name]["fields"]
        made[name]["fields"] = [field for field in fields if field["name"] not in names]
    return made


def _this_raw() -> dict[str, Schema]:
    """Return this release's schemas with a mark at the fields that may be left out."""
    made = raw_schemas()
    for name, names in _DROPPABLE.items():
        for field in made[name]["fields"]:
            if field["name"] in names:
                field["droppable"] = True
    return made


def _schemas(version: str) -> dict[str, Schema]:
    raw = _raw(_LACKS[version], _WITHOUT[version])
    return {name: self_contained(name, raw) for name in raw}


RAW = _this_raw()
_SCHEMAS = {version: _schemas(version) for version in (FIRST, SECOND)}
RELEASES = {
    version: SchemaRelease(
        version, {name: schema_fingerprint(schema) for name, schema in schemas.items()}
    )
    for version, schemas in _SCHEMAS.items()
}
VERSIONS: SchemaVersions = {
    name: {
        **kept,
        **{
            schema_fingerprint(schemas[name]): schemas[name]
            for schemas in _SCHEMAS.values()
            if name in schemas
        },
    }
    for name, kept in schema_versions().items()
}
"""All schemas of these releases and of this one."""
decode = decoder_of(VERSIONS)


def encoder(version: str) -> EncodeRecord:
    """Return the function by which a process of this release, pinned to `version`, encodes."""
    return encoder_as(RELEASES[version], this_release(), RAW, VERSIONS)


def decoder_then(version: str) -> Callable[[bytes], Record]:
    """Return the function by which a process of that release decodes records.

    Fields that it does not know are lost, and have their defaults in the record that is returned.
    """
    now = RELEASES[version].fingerprints
    earlier = [RELEASES[each] for each in (FIRST, SECOND) if each <= version]
    names = {mark: name for release in earlier for name, mark in release.fingerprints.items()}

    def decode_then(data: bytes) -> Record:
        fingerprint = data[len(MARKER) : HEADER_BYTES].hex()
        name = names.get(fingerprint)
        if name is None:
            raise UnknownSchema(fingerprint)
        body, seen = BytesIO(data[HEADER_BYTES:]), BytesIO()
        reader, writer = (parsed(VERSIONS[name][mark]) for mark in (now[name], fingerprint))
        schemaless_writer(seen, reader, schemaless_reader(body, writer, reader))
        return decode(MARKER + bytes.fromhex(now[name]) + seen.getvalue())

    return decode_then


def copy_of_product(folder: Path) -> None:
    """Write a copy of the product that knows both releases into `folder`, for `PYTHONPATH`."""
    package = folder / "seamlessflow"
    shutil.copytree(ROOT / "seamlessflow", package, ignore=shutil.ignore_patterns("__pycache__"))
    schemas = package / "schemas"
    for name, schema in RAW.items():
        (schemas / "avsc" / f"{name}.avsc").write_text(json.dumps(schema))
    for name, kept in VERSIONS.items():
        for fingerprint, schema in kept.items():
            (schemas / "versions" / name / f"{fingerprint}.avsc").write_text(json.dumps(schema))
    for version, release in RELEASES.items():
        manifest = json.dumps(dict(release.fingerprints))
        (schemas / "manifests" / f"{version}.json").write_text(manifest)
