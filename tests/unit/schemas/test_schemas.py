"""The schemas: dataclasses match them, nothing released ever becomes unreadable."""

import contextlib
import shutil
import subprocess
import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fastavro import schemaless_reader, schemaless_writer
from fastavro.utils import generate_one
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow import schemas
from seamlessflow.schemas.codec import UndecodableRecord, UnknownSchema, decode, encode
from seamlessflow.schemas.generate import records_source
from seamlessflow.schemas.records import (
    RECORDS,
    Record,
    Sampling,
    Trajectory,
    TurnProgressed,
    VersionSpan,
)
from seamlessflow.schemas.registry import (
    Schema,
    parsed,
    raw_schemas,
    schema_fingerprint,
    schema_versions,
    self_contained,
)
from seamlessflow.schemas.topics import ARMS, FLEET, REQUESTS, SESSIONS, TOPICS, fleet_key
from tests.builders.records.sessions import dispatched
from tests.builders.schemas.made_up import VERSIONS
from tests.builders.schemas.made_up import decode as decode_any
from tests.paths import ROOT

RAW = raw_schemas()
HEADERS = [
    b"\xc3\x01" + bytes.fromhex(name) for fingerprints in VERSIONS.values() for name in fingerprints
]


def _without_layout(source: str) -> str:
    return "".join(source.split()).replace(",)", ")").replace(",]", "]")


def test_the_dataclasses_are_what_the_schemas_say() -> None:
    written = (Path(schemas.__path__[0]) / "records.py").read_text()

    assert _without_layout(written) == _without_layout(records_source(RAW))


def test_the_generator_writes_what_is_here(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "schemas", tmp_path / "schemas")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "seamlessflow").mkdir()
    (tmp_path / "seamlessflow" / "schemas").symlink_to("../schemas")
    for written in (tmp_path / "schemas" / "manifests").iterdir():
        written.unlink()

    command = [sys.executable, "-P", "seamlessflow/schemas/generate.py"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)

    for folder in ("manifests", "versions"):
        files = [path for path in (ROOT / "schemas" / folder).rglob("*") if path.is_file()]
        assert files
        for path in files:
            assert (tmp_path / path.relative_to(ROOT)).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", RAW)
def test_every_record_and_field_is_explained(name: str) -> None:
    assert RAW[name]["name"] == name
    assert RAW[name]["doc"].endswith(".")
    for field in RAW[name]["fields"]:
        assert field["doc"].endswith("."), field["name"]


@pytest.mark.parametrize("name", RAW)
def test_the_present_schema_is_kept(name: str) -> None:
    assert schema_fingerprint(self_contained(name, RAW)) in schema_versions()[name]


def _versions() -> list[tuple[str, str]]:
    return [(name, version) for name, versions in VERSIONS.items() for version in versions]


@pytest.mark.parametrize(("name", "version"), _versions())
def test_every_released_version_can_still_be_read(name: str, version: str) -> None:
    old = VERSIONS[name][version]
    assert schema_fingerprint(old) == version, "a released schema was edited"
    buffer = BytesIO()
    schemaless_writer(buffer, parsed(old), generate_one(parsed(old)))

    record = decode_any(b"\xc3\x01" + bytes.fromhex(version) + buffer.getvalue())

    assert type(record) is RECORDS[name]


@pytest.mark.parametrize(("name", "version"), _versions())
def test_a_reader_of_a_released_version_can_read_what_is_written_now(
    name: str, version: str
) -> None:
    now, old = parsed(self_contained(name, RAW)), parsed(VERSIONS[name][version])
    buffer = BytesIO()
    schemaless_writer(buffer, now, generate_one(now))
    buffer.seek(0)

    assert isinstance(schemaless_reader(buffer, now, old), dict)


def test_a_record_survives_encoding() -> None:
    record = TurnProgressed(
        session_id="s",
        turn_id="t",
        dispatch=1,
        worker="w",
        incarnation="i",
        token_offset=3,
        token_ids=b"\1\0\0\0",
        logprobs=b"\0\0\0\0",
        spans=(VersionSpan(start=3, version_min=7, version_max=7),),
        at_ms=5,
    )

    assert decode(encode(record)) == record


@pytest.mark.parametrize("name", RAW)
def test_another_avro_library_reads_what_is_written(name: str) -> None:
    schema, header = parsed(self_contained(name, RAW)), 10
    for _ in range(20):
        made, buffer = generate_one(schema), BytesIO()
        schemaless_writer(buffer, schema, made)
        fingerprint = bytes.fromhex(schema_fingerprint(self_contained(name, RAW)))
        written = encode(decode(b"\xc3\x01" + fingerprint + buffer.getvalue()))

        assert schemaless_reader(BytesIO(written[header:]), schema, None) == made


@pytest.mark.parametrize(
    "number", [0, 1, -1, 63, 64, 4095, 4096, 2**31, -(2**31), 2**63 - 1, -(2**63)]
)
def test_numbers_survive_encoding(number: int) -> None:
    assert decode(encode(Sampling(seed=number))) == Sampling(seed=number)


@pytest.mark.parametrize(
    "wrong", [{"seed": 2**63}, {"seed": 0.5}, {"seed": "1"}, {"stop": (b"a",)}, {"top_p": "1"}]
)
def test_wrong_fields_are_not_written(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode(Sampling(**wrong))


def test_equal_maps_are_equal_bytes_whatever_their_order() -> None:
    sampling = Sampling(logit_bias={"1": 1.0, "2": 2.0})
    reordered = Sampling(logit_bias={"2": 2.0, "1": 1.0})

    assert encode(sampling) == encode(reordered)


@pytest.mark.parametrize(
    "data", [b"", b"\xc3\x01", b"garbage, long enough", b"\xc3\x01" + b"x" * 40]
)
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(UndecodableRecord):
        decode(data)


def test_a_record_whose_schema_is_unknown_is_not_taken_for_garbage() -> None:
    """By its marker: only a newer release writes other fingerprints behind it."""
    with pytest.raises(UnknownSchema, match="0102030405060708") as error:
        decode(b"\xc3\x01" + bytes(range(1, 9)) + b"body")
    assert error.value.fingerprint == "0102030405060708"
    for garbage in (b"\xc3\x01\x01", b"\xc4\x01" + bytes(range(1, 9))):
        with pytest.raises(UndecodableRecord) as other:
            decode(garbage)
        assert not isinstance(other.value, UnknownSchema)


DISPATCHED = dispatched()
FULL = encode(
    Sampling(temperature=0.5, seed=2**40, stop=("a", "b" * 100), logit_bias={"1": 1.0, "2": 2.0})
)


@pytest.mark.parametrize("length", range(10, len(FULL)))
def test_a_cut_record_is_refused(length: int) -> None:
    with pytest.raises(UndecodableRecord):
        decode(FULL[:length])


def test_a_record_cut_within_fields_that_recur_is_refused() -> None:
    """Also when the whole fields were read before, and are known by their bytes."""
    whole = encode(DISPATCHED)
    assert decode(whole) == decode(whole) == DISPATCHED

    for length in range(10, len(whole)):
        with pytest.raises(UndecodableRecord):
            decode(whole[:length])


@given(st.lists(st.tuples(st.sampled_from(["", "w", "w" * 200]), st.integers(-1, 300))))
def test_fields_that_recur_are_read_as_they_are_written(values: list[tuple[str, int]]) -> None:
    for worker, slot in values:
        record = replace(DISPATCHED, worker=worker, slot=slot)
        assert decode(encode(record)) == record


def test_more_than_a_record_is_refused() -> None:
    with pytest.raises(UndecodableRecord, match="ends at byte"):
        decode(FULL + b"\0")


@given(st.lists(st.tuples(st.integers(10, len(FULL) - 1), st.integers(0, 255)), min_size=1))
def test_a_damaged_record_is_read_or_refused(damage: list[tuple[int, int]]) -> None:
    damaged = bytearray(FULL)
    for place, byte in damage:
        damaged[place] = byte
    with contextlib.suppress(UndecodableRecord):
        assert isinstance(decode(bytes(damaged)), Sampling)


@given(st.sampled_from(HEADERS), st.binary(max_size=200))
def test_garbage_behind_the_header_of_any_version_is_read_or_refused(
    header: bytes, body: bytes
) -> None:
    with contextlib.suppress(UndecodableRecord):
        assert isinstance(decode_any(header + body), Record)


def test_a_list_in_blocks_with_their_sizes_is_read() -> None:
    """As Avro allows, and other writers do."""
    items = b"\x02a\x02b"
    assert FULL.count(b"\x04\x02a") == 1
    blocks = FULL.replace(b"\x04\x02a", b"\x03\x04" + items + b"\x04\x02a")

    read = decode(blocks)

    assert isinstance(read, Sampling)
    assert read.stop == ("a", "b", "a", "b" * 100)


def test_requests_and_sessions_are_co_partitioned() -> None:
    assert REQUESTS.partitions == SESSIONS.partitions


def test_only_the_last_state_of_fleet_and_arms_is_kept() -> None:
    assert [topic.name for topic in TOPICS.values() if topic.compacted] == [
        FLEET.name,
        ARMS.name,
    ]


def test_every_record_with_a_key_of_the_fleet_is_of_that_topic() -> None:
    written = [generate_one(parsed(self_contained(name, RAW))) for name in RAW]
    records = [RECORDS[name](**values) for name, values in zip(RAW, written, strict=True)]
    keyed = {type(record) for record in records if _has_key(record)}
    assert keyed == set(FLEET.records)


def _has_key(record: Record) -> bool:
    try:
        return bool(fleet_key(record))
    except (TypeError, ValueError):
        return False


def test_a_new_field_without_default_would_be_noticed() -> None:
    broken: Schema = self_contained("Trajectory", RAW)
    field: dict[str, Any] = {"name": "unheard_of", "type": "string", "doc": "New."}
    reader = parsed({**broken, "fields": [*broken["fields"], field]})
    buffer = BytesIO()
    schemaless_writer(buffer, parsed(self_contained("Trajectory", RAW)), generate_one(reader))
    buffer.seek(0)

    with pytest.raises(Exception, match="unheard_of"):
        schemaless_reader(buffer, parsed(self_contained("Trajectory", RAW)), reader)
    assert RECORDS["Trajectory"] is Trajectory
