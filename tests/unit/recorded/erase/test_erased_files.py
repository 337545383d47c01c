"""Lines of sessions that are taken out of files."""

import gzip
import json
from pathlib import Path

import pytest

from seamlessflow.recorded.erase.erased_files import erase_from_files
from seamlessflow.recorded.erase.erased_sessions import ErasedSessions
from tests.builders.line_forms import LINE_FORMS, Written

GONE, STAYS = {"session_id": "gone~1", "text": "t"}, {"session_id": "stays", "text": "t"}
UNKNOWN = b'no json\n{"input_ids": [1]}\n'
ERASED = ErasedSessions.from_names(["gone"])


def lines(*contents: object) -> bytes:
    return b"".join(json.dumps(content).encode() + b"\n" for content in contents)


def test_only_files_with_the_sessions_are_rewritten(tmp_path: Path) -> None:
    rows, others = tmp_path / "deep" / "rows.jsonl", tmp_path / "others.jsonl.gz"
    rows.parent.mkdir()
    rows.write_bytes(lines(STAYS, GONE) + UNKNOWN)
    others.write_bytes(gzip.compress(lines(STAYS)))
    (tmp_path / "table.parquet").write_bytes(b"PAR1")
    before = others.stat().st_mtime_ns

    counted = erase_from_files([tmp_path], ERASED, dry_run=True)
    assert rows.read_bytes() == lines(STAYS, GONE) + UNKNOWN
    erased = erase_from_files([tmp_path], ERASED, dry_run=False)

    assert erased == counted
    assert (erased.lines, erased.nameless) == ({rows: 1}, {rows: 2})
    assert erased.tables == [tmp_path / "table.parquet"]
    assert rows.read_bytes() == lines(STAYS) + UNKNOWN
    assert others.stat().st_mtime_ns == before
    assert erase_from_files([tmp_path], ERASED, dry_run=False).lines == {}


@pytest.mark.parametrize("written", LINE_FORMS.values(), ids=LINE_FORMS)
def test_sessions_are_found_however_their_lines_were_written(
    written: Written, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(written([json.dumps(row).encode() for row in (GONE, STAYS, GONE)]))
    erased = erase_from_files([tmp_path], ERASED, dry_run=False)
    assert (erased.lines, erased.nameless) == ({rows: 2}, {})
    assert b"gone" not in rows.read_bytes()
    assert b"stays" in rows.read_bytes()


def test_a_packed_file_stays_packed(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl.gz"
    rows.write_bytes(gzip.compress(lines(GONE, STAYS)))
    assert erase_from_files([tmp_path], ERASED, dry_run=False).first_version is None
    assert gzip.decompress(rows.read_bytes()) == lines(STAYS)
