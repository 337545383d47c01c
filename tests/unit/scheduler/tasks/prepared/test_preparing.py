"""Sources of tasks of any form, which become files of JSON lines."""

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from seamlessflow.scheduler.tasks.file import TaskFile
from seamlessflow.scheduler.tasks.prepared.source import SourceRejected
from tests.builders.scheduler.prepared import (
    WRITERS,
    Writer,
    csv_file,
    parquet,
    prepared,
    prepared_path,
    saved_dataset,
    zipped_lines,
    zstd_lines,
)

ROWS = [
    {"uid": "a", "question": "2 + 2\n= ?", "solution": "4"},
    {"uid": "b", "question": 'say "hi", \u2028 and 🙂', "solution": "hi"},
    {"uid": "c", "question": "half of 1", "solution": "0,5"},
]
TASKS = [{"id": r["uid"], "prompt": r["question"], "answer": r["solution"]} for r in ROWS]
MAP = {"id": "uid", "prompt": "question", "answer": "solution"}


def refused(source: str, folder: Path, **choice: Any) -> str:
    with pytest.raises(SourceRejected) as error:
        prepared(source, folder, **choice)
    assert not list((folder / "prepared").iterdir()), "a draft or a file was left"
    return str(error.value).replace(str(folder), "DIR")


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_the_same_rows_are_the_same_tasks_in_each_form(write: Writer, tmp_path: Path) -> None:
    assert prepared(write(tmp_path, ROWS), tmp_path, map=MAP) == TASKS


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_without_a_map_a_task_has_all_columns(write: Writer, tmp_path: Path) -> None:
    rows = [{"id": row["uid"], "question": row["question"]} for row in ROWS]
    assert prepared(write(tmp_path, rows), tmp_path) == rows


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_ids_made_from_the_content_are_the_same_in_each_form(write: Writer, tmp_path: Path) -> None:
    chosen = {"prompt": "question", "answer": "solution"}
    ids = [task["id"] for task in prepared(write(tmp_path, ROWS), tmp_path, map=chosen)]
    assert ids == [
        "bf082ad508301ee372c854ead8149b1e",
        "46a180ef1a8fb34f7e66e69e38898921",
        "2979edb1f330b38685cb77ca8540ece5",
    ]


def test_equal_rows_without_ids_are_a_task_once(tmp_path: Path) -> None:
    source = parquet(tmp_path, [{"q": "a"}, {"q": "b"}, {"q": "a"}, {"q": "a"}, {"q": "c"}])
    assert [task["q"] for task in prepared(source, tmp_path)] == ["a", "b", "c"]


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_storage_of_a_url_gives_the_same(write: Writer, tmp_path: Path) -> None:
    source = write(tmp_path, ROWS)
    MemoryFileSystem.store.clear()
    memory = MemoryFileSystem()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            memory.pipe_file(f"/bucket/{path.relative_to(tmp_path)}", path.read_bytes())
    url = f"memory://bucket{source.removeprefix(str(tmp_path))}"
    assert prepared(url, tmp_path / "there", map=MAP) == TASKS
    assert [path.suffix for path in (tmp_path / "there/prepared").iterdir()] == [".jsonl"]


def test_a_source_is_prepared_once_and_again_when_its_content_changes(tmp_path: Path) -> None:
    source = parquet(tmp_path, ROWS)
    first = prepared_path(source, tmp_path, map=MAP)
    written = first.stat()
    assert prepared_path(parquet(tmp_path, ROWS), tmp_path, map=MAP).stat() == written
    other = prepared_path(parquet(tmp_path, ROWS[:2]), tmp_path, map=MAP)
    assert other != first
    assert first.read_bytes().count(b"\n") == 3
    assert other.read_bytes().count(b"\n") == 2
    assert prepared_path(source, tmp_path, map={"q": "question"}) not in (first, other)


def test_a_task_of_5_mb_is_read_from_each_form(tmp_path: Path) -> None:
    rows = [{"id": "large", "text": "ü" * 5_000_000}, {"id": "small", "text": "x"}]
    for name, write in WRITERS.items():
        folder = tmp_path / name
        folder.mkdir()
        assert prepared(write(folder, rows), folder) == rows, name


IDS = ["new\nline", "🙂" * 3, "x" * 1_000, "\u2028", '"', " a"]


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_odd_ids_are_kept(write: Writer, tmp_path: Path) -> None:
    source = write(tmp_path, [{"id": task_id, "text": "t"} for task_id in IDS])
    file = TaskFile(prepared_path(source, tmp_path))
    assert [row.task_id for row in file] == IDS
    assert all(file.find(task_id) for task_id in IDS)


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_an_id_of_two_rows_is_refused_with_both(write: Writer, tmp_path: Path) -> None:
    rows = [{"id": "a", "x": "1"}, {"id": "b", "x": "1"}, {"id": "a", "x": "2"}]
    text = refused(write(tmp_path, rows), tmp_path)
    assert text.endswith("has the id 'a', too"), text
    assert re.search(r"(line|row) [12] has the id", text), text


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_missing_column_is_refused_with_those_that_exist(write: Writer, tmp_path: Path) -> None:
    text = refused(write(tmp_path, ROWS), tmp_path, map={"prompt": "questions"})
    assert text.endswith("there is no column 'questions', but 'uid', 'question', 'solution'"), text


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_choice_that_leaves_nothing_is_refused_with_what_was_seen(
    write: Writer, tmp_path: Path
) -> None:
    text = refused(write(tmp_path, ROWS), tmp_path, where={"uid": ["d", 7]})
    assert text.endswith("where leaves none of 3 rows: uid has 'a', 'b', 'c'"), text


def test_a_parquet_file_that_is_cut_short_is_refused_with_file_and_place(tmp_path: Path) -> None:
    source = Path(parquet(tmp_path, ROWS))
    whole = source.read_bytes()
    source.write_bytes(whole[: len(whole) // 2])
    assert refused(str(source), tmp_path) == (
        f"DIR/rows.parquet, byte {len(whole) // 2:,}: it is cut short: the end of a Parquet file "
        "is missing there"
    )


def test_a_parquet_file_that_is_broken_inside_is_refused_with_its_row_group(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    rows = [{"id": f"{number}", "text": f"{number}" * 500} for number in range(40)]
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=10, compression="gzip")
    offset = pq.ParquetFile(path).metadata.row_group(2).column(1).data_page_offset
    broken = bytearray(path.read_bytes())
    broken[offset : offset + 60] = bytes(60)
    path.write_bytes(broken)
    text = refused(str(path), tmp_path)
    assert text.startswith("DIR/rows.parquet, row group 3 of 4: it is broken: "), text


def test_an_arrow_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    source = saved_dataset(tmp_path, ROWS)
    second = Path(source) / "data-00001-of-00002.arrow"
    second.write_bytes(second.read_bytes()[:-200])
    text = refused(source, tmp_path)
    assert text.startswith(f"DIR/saved/{second.name}, behind row 0: it is cut short or broken")


@pytest.mark.parametrize("write", [zipped_lines, zstd_lines])
def test_a_compressed_file_that_is_cut_short_is_refused(write: Writer, tmp_path: Path) -> None:
    source = Path(write(tmp_path, [{"id": str(number)} for number in range(5_000)]))
    source.write_bytes(source.read_bytes()[:-20])
    text = refused(str(source), tmp_path)
    assert "cut short" in text, text


def test_a_compressed_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet.gz"
    path.write_bytes(gzip.compress(Path(parquet(tmp_path, ROWS)).read_bytes()))
    assert "a parquet file is compressed inside" in refused(str(path), tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("rows.json", "", "there are no tasks in it"),
        ("rows.json", "[]", "there are no tasks in it"),
        ("rows.json", " [", "it is cut short: ] is missing"),
        ("rows.json", '[{"id": "a"}', "a comma or ] is missing behind it (it ends there"),
        ("rows.json", '[{"id": "a"} {"id": "b"}]', "row 1: a comma or ] is missing behind it"),
        ("rows.json", '[{"id": "a"}, {"id": }]', "row 2: Expecting value at letter 8 of it"),
        ("rows.json", '[{"id": "a"}, {"id": "b', "row 2: Unterminated string"),
        ("rows.json", '[{"id": NaN}]', "row 1: NaN is no JSON"),
        ("rows.json", '[{"id": "a"}] []', "more stands behind the end of the list"),
        ("rows.json", '[{"id": "a"}, 3]', "row 2: it is no JSON object"),
        ("rows.csv", "", "line 1: there is no row with the names of columns"),
        ("rows.csv", "id,text\n", "there are no tasks in it"),
        ("rows.csv", "id,id\n1,2\n", "line 1: two columns have the name 'id'"),
        ("rows.csv", "id,text\n1,2,3\n", "line 2: 3 fields, and the first row names 2"),
        ("rows.csv", 'id,text\n1,"a\nb"\n2,"c\n', "line 4: unexpected end of data"),
        ("rows.csv", 'id,text\n1,"a"b\n', "line 2: ',' expected after '\"'"),
        ("rows.jsonl.gz", "", "there are no tasks in it"),
        ("rows.parquet", "", "byte 0: it is no Parquet file"),
        ("rows.jsonl", '{"id": "a"}\n{"a": 1}\n', "line 2: it has no id, and the first task has"),
        ("rows.jsonl", '{"a": 1}\n{"id": "a"}\n', "line 2: it has an id, and the first has none"),
        ("rows.jsonl", '{"id": 1.5}\n', "line 1: id is 1.5, not a text or a whole number"),
        ("rows.jsonl", '{"id": "a", "tags": "x"}', 'line 1: tags is "x", not a list of texts'),
        ("rows.jsonl", "[1]\n", "line 1: it is no JSON object"),
    ],
)
def test_a_broken_text_is_refused_with_its_place(
    name: str, content: str, reason: str, tmp_path: Path
) -> None:
    data = content.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    text = refused(str(tmp_path / name), tmp_path, where={})
    assert text.startswith(f"DIR/{name}")
    assert reason in text, text


def test_fields_of_csv_in_quotes_may_have_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b'\xef\xbb\xbfid,text\r\n1,"a\r\nb ""c"", d"\r\n\r\n2,\r\n')
    assert prepared(str(path), tmp_path) == [
        {"id": "1", "text": 'a\r\nb "c", d'},
        {"id": "2", "text": ""},
    ]


def test_a_column_that_json_lacks_is_named(tmp_path: Path) -> None:
    source = parquet(tmp_path, [{"id": "a", "image": b"\xff"}])
    assert "row 1: column 'image' is no JSON" in refused(source, tmp_path)
    assert prepared(source, tmp_path, map={"id": "id"}) == [{"id": "a"}]


def test_a_data_set_of_several_splits_names_them(tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    text = refused(str(tmp_path), tmp_path)
    assert text == "DIR: it has several splits: name DIR/train or DIR/test"


def test_a_directory_of_other_files_is_refused(tmp_path: Path) -> None:
    text = refused(str(tmp_path), tmp_path)
    assert text.startswith("DIR: it has no state.json, which save_to_disk writes")


@pytest.mark.parametrize("write", [parquet, saved_dataset, zstd_lines])
def test_without_pyarrow_the_command_that_installs_it_is_named(
    write: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path, ROWS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "needs pyarrow: pip install 'seamlessflow[parquet]'" in refused(source, tmp_path)


def test_a_key_in_a_url_is_not_shown(tmp_path: Path) -> None:
    text = refused("memory://user:secret@bucket/rows.csv?key=secret", tmp_path)
    assert text == "memory://bucket/rows.csv: No such file or directory"


def test_what_a_killed_preparation_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "prepared/seamlessflow-killed"
    left.mkdir(parents=True)
    (left / "owner.lock").touch()
    (left / "rows.jsonl").write_text("half")
    prepared(csv_file(tmp_path, ROWS), tmp_path)
    assert not left.exists()
