"""Two releases of a record: what a pinned writer writes, readers of the older release read."""

import tomllib
from dataclasses import MISSING, fields, replace
from typing import Any

import pytest
from hypothesis import given, settings

from seamlessflow.schemas.codec import UnknownSchema, encode
from seamlessflow.schemas.records import Record, TrajectoryNode, TurnUndelivered
from seamlessflow.schemas.registry import (
    raw_schemas,
    schema_fingerprint,
    schema_versions,
    self_contained,
)
from seamlessflow.schemas.releases import (
    UnknownRelease,
    order,
    releases,
    this_release,
)
from seamlessflow.schemas.written import NotInRelease, encoder_of
from tests.builders.records import commands, fleet, sessions
from tests.builders.schemas.any_record import any_encoded
from tests.builders.schemas.made_up import (
    FIRST,
    RELEASES,
    SECOND,
    VERSIONS,
    decode,
    decoder_then,
    encoder,
)
from tests.builders.schemas.made_up import RAW as WITH_MARKS
from tests.builders.trainer.trajectories import NOTHING
from tests.paths import ROOT

RAW = raw_schemas()
EARLIER = (FIRST, SECOND)
CHANGED = [
    (version, name)
    for version in EARLIER
    for name in this_release().changed_since(RELEASES[version])
    if name in RELEASES[version].fingerprints
]
"""All others are written by the same function, pinned or not."""
PINNED = {version: encoder(version) for version in EARLIER}
READER_THEN = {version: decoder_then(version) for version in EARLIER}


def test_the_newest_release_is_that_of_these_sources() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    fingerprints = {name: schema_fingerprint(self_contained(name, RAW)) for name in RAW}

    assert this_release().version == project["version"], (
        "run: python -m seamlessflow.schemas.generate"
    )
    assert this_release().fingerprints == fingerprints, (
        "run: python -m seamlessflow.schemas.generate"
    )


@pytest.mark.parametrize("release", releases(), ids=lambda release: release.version)
def test_every_schema_of_a_release_is_kept(release: Any) -> None:
    kept = schema_versions()
    assert [n for n, version in release.fingerprints.items() if version not in kept[n]] == []


def test_releases_are_ordered_by_their_numbers() -> None:
    ordered = sorted(["0.10.0", "0.9.1", "", "0.9", "nonsense"], key=order)
    assert ordered[2:] == ["0.9", "0.9.1", "0.10.0"]


def test_a_release_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UnknownRelease, match=r"release 7.0.0 .* are 0.1.0"):
        encoder_of("7.0.0")


@pytest.mark.parametrize(("version", "name"), CHANGED)
def test_what_a_pinned_writer_writes_is_equal_to_readers_of_both_releases(
    version: str, name: str
) -> None:
    schema = VERSIONS[name][RELEASES[version].fingerprints[name]]

    @settings(max_examples=20)
    @given(any_encoded(schema))
    def check(written_then: bytes) -> None:
        record = decode(written_then)
        written = PINNED[version](record)

        assert written[:10] == written_then[:10]
        assert READER_THEN[version](written) == record
        assert decode(written) == record

    check()


@pytest.mark.parametrize(("version", "name"), CHANGED)
def test_a_pinned_writer_writes_or_refuses_any_record_of_this_release(
    version: str, name: str
) -> None:
    @settings(max_examples=20)
    @given(any_encoded(self_contained(name, RAW)))
    def check(written_now: bytes) -> None:
        record = decode(written_now)
        try:
            written = PINNED[version](record)
        except NotInRelease:
            return
        assert _without_droppable(record) == decode(written)
        assert READER_THEN[version](written) == decode(written)

    check()


def _without_droppable(record: Record) -> Record:
    """Return the record with the defaults of its droppable fields, and of those inside of it."""
    declared = WITH_MARKS[type(record).__name__]["fields"]
    names = {field["name"] for field in declared if field.get("droppable")}
    changed = {}
    for field in fields(record):  # type: ignore[arg-type]
        value = getattr(record, field.name)
        if field.name in names:
            factory = field.default_factory
            changed[field.name] = field.default if factory is MISSING else factory()
        elif isinstance(value, tuple) and value and isinstance(value[0], Record):
            changed[field.name] = tuple(_without_droppable(item) for item in value)
    return replace(record, **changed)  # type: ignore[type-var]


def test_an_older_reader_stops_at_what_a_writer_without_a_pin_writes() -> None:
    with pytest.raises(UnknownSchema):
        READER_THEN[FIRST](encode(sessions.opened()))
    with pytest.raises(UnknownSchema):
        READER_THEN[SECOND](encode(fleet.heartbeat()))


def test_a_field_that_the_older_release_lacks_is_refused_by_name() -> None:
    terms = commands.open_session(idempotency_key="again")

    with pytest.raises(NotInRelease, match=r"release 0.0.1 has no OpenSession.idempotency_key"):
        PINNED[FIRST](terms)
    assert READER_THEN[FIRST](PINNED[FIRST](commands.open_session())) == commands.open_session()


def test_a_field_of_a_record_within_a_record_is_refused_by_name() -> None:
    node = TrajectoryNode(
        node_id=0,
        parent=-1,
        parent_end=0,
        start=0,
        length=1,
        origin="prompt",
        turn_id="a",
        logprob_temperature=0.5,
        log_offset=0,
    )

    with pytest.raises(NotInRelease, match=r"no TrajectoryNode.logprob_temperature"):
        PINNED[FIRST](replace(NOTHING, nodes=(node,)))


def test_a_record_that_the_older_release_lacks_is_refused_by_name() -> None:
    event = sessions.undelivered()

    assert isinstance(event, TurnUndelivered)
    with pytest.raises(NotInRelease, match=r"release 0.0.1 has no TurnUndelivered$"):
        PINNED[FIRST](event)


def test_a_droppable_field_is_left_out() -> None:
    beat = fleet.heartbeat(release="0.1.0")

    assert READER_THEN[SECOND](PINNED[SECOND](beat)) == fleet.heartbeat()


def test_droppable_fields_are_those_that_a_fold_can_do_without() -> None:
    """A fold that read one would see it or not depending on the pin: add to these with care."""
    named = {
        f"{name}.{field['name']}"
        for name, schema in RAW.items()
        for field in schema["fields"]
        if field.get("droppable")
    }
    assert named == set()


def test_without_a_pin_records_are_encoded_by_the_same_function() -> None:
    assert encoder_of(this_release().version) is encode


@pytest.mark.parametrize("version", EARLIER)
def test_a_pinned_writer_writes_unchanged_records_as_ever(version: str) -> None:
    assert PINNED[version](sessions.failed()) == encode(sessions.failed())
