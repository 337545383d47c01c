"""Exported schemas: any Avro tool reads the records with the file alone."""

import json
from io import BytesIO
from pathlib import Path

import pytest
from fastavro import parse_schema, schemaless_reader
from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.recorded.interchange.schema_files import write_schemas
from seamlessflow.schemas.codec import HEADER_BYTES, encode
from seamlessflow.schemas.registry import schema_versions
from seamlessflow.schemas.releases import this_release
from tests.builders.trainer.trajectories import NOTHING


def test_each_record_has_a_file_that_needs_no_other(tmp_path: Path) -> None:
    written = write_schemas(tmp_path / "made", every_version=False)

    names = {path.name.removesuffix(".avsc") for path in written}
    assert names == {
        f"{name}.{fingerprint}" for name, fingerprint in this_release().fingerprints.items()
    }
    for path in written:
        parse_schema(json.loads(path.read_text()), named_schemas={})


def test_a_record_is_read_with_the_file_that_its_header_names(tmp_path: Path) -> None:
    write_schemas(tmp_path, every_version=False)
    record = encode(NOTHING)

    (path,) = tmp_path.glob(f"*.{record[2:HEADER_BYTES].hex()}.avsc")
    schema = parse_schema(json.loads(path.read_text()))
    read = schemaless_reader(BytesIO(record[HEADER_BYTES:]), schema, None)

    assert isinstance(read, dict)
    assert read["session_id"] == NOTHING.session_id


def test_a_file_is_refused_as_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = CliRunner().invoke(app, ["schemas", "export", str(tmp_path / "file")])
    assert "is no directory for files" in str(refused.exception)


def test_versions_that_old_logs_hold_are_written_if_asked_for(tmp_path: Path) -> None:
    written = write_schemas(tmp_path, every_version=True)

    assert len(written) == sum(map(len, schema_versions().values()))


@pytest.mark.parametrize("name", schema_versions())
def test_files_carry_the_documentation(name: str, tmp_path: Path) -> None:
    write_schemas(tmp_path, every_version=False)
    (path,) = tmp_path.glob(f"{name}.*.avsc")

    assert all("doc" in field for field in json.loads(path.read_text())["fields"])
