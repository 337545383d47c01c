"""Rows of a file of JSON lines."""

from pathlib import Path

import pytest

from seamlessflow.recorded.importing.foreign_row import ForeignRowRejected
from seamlessflow.recorded.importing.importing import jsonl_rows
from tests.builders.line_forms import LINE_FORMS, SEPARATORS, Written


@pytest.mark.parametrize("written", LINE_FORMS.values(), ids=LINE_FORMS)
def test_rows_are_the_same_however_their_lines_were_written(
    written: Written, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(written([b'{"a":1}', f'{{"a":"{SEPARATORS}"}}'.encode(), b'{"a":3}']))
    assert [row["a"] for row in jsonl_rows(path)] == [1, SEPARATORS, 3]


@pytest.mark.parametrize("line", [b"{", b"[1]", b'{"a": NaN}', b"\xff\xfe{\x00"])
def test_a_line_that_is_no_object_is_named_by_its_number(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\n{"a":1}\n\n' + line + b"\n")
    with pytest.raises(ForeignRowRejected) as raised:
        list(jsonl_rows(path))
    assert raised.value.row == 4
