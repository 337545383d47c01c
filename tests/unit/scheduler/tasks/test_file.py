"""The file of tasks and the order of draws."""

from pathlib import Path

import pytest

from seamlessflow.scheduler.tasks.file import TaskFile, TasksRejected, read, source_of
from tests.builders.line_forms import LINE_FORMS, SEPARATORS, Written


def write(folder: Path, *lines: str) -> Path:
    path = folder / "tasks.jsonl"
    path.write_text("\n".join(lines))
    return path


def rows(count: int) -> list[str]:
    return [f'{{"id": "t{number}"}}' for number in range(count)]


def test_a_pass_draws_every_task_once_in_an_order_of_its_own(tmp_path: Path) -> None:
    source = read(write(tmp_path, *rows(20)))

    first, second = (
        [source.draw(20 * finished + n).task_id for n in range(20)] for finished in (0, 1)
    )
    assert sorted(first) == sorted(second) == sorted(f"t{number}" for number in range(20))
    assert first != second


@pytest.mark.parametrize("written", LINE_FORMS.values(), ids=LINE_FORMS)
def test_tasks_are_the_same_however_their_lines_were_written(
    written: Written, tmp_path: Path
) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(written([f'{{"id":"{SEPARATORS}"}}'.encode(), b'{"id":"2"}', b'{"id":"3"}']))
    tasks = TaskFile(path)
    assert [task.payload.decode() for task in tasks] == [
        f'{{"id":"{SEPARATORS}"}}',
        '{"id":"2"}',
        '{"id":"3"}',
    ]
    assert (row := tasks.find("3")) and row.task_id == "3"


def test_the_same_seed_draws_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, *rows(20))

    first, same, other = (
        [source_of(TaskFile(path), s).draw(n) for n in range(20)] for s in (1, 1, 2)
    )
    assert first == same
    assert first != other


def test_unshuffled_tasks_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    source = source_of(TaskFile(write(tmp_path, *rows(3))), shuffled=False)

    assert [source.draw(number).task_id for number in range(4)] == ["t0", "t1", "t2", "t0"]


def test_a_task_keeps_all_its_fields(tmp_path: Path) -> None:
    (row,) = read(write(tmp_path, '{"key": [1], "id": 7, "metadata": {"level": 2}}', "")).rows

    assert row.task_id == "7"
    assert row.payload == b'{"id":7,"key":[1],"metadata":{"level":2}}'
    assert row.metadata == {"level": "2"}


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**64), 10**30, 10**400])
def test_a_wide_integer_keeps_its_digits(tmp_path: Path, number: int) -> None:
    (row,) = read(write(tmp_path, f'{{"id": {number}, "answer": {number}}}')).rows
    assert row.task_id == str(number)
    assert row.payload == b'{"answer":%d,"id":%d}' % (number, number)


def test_a_task_may_name_the_size_of_its_groups_and_tags(tmp_path: Path) -> None:
    lines = ['{"id": 1, "group_size": 4, "min_group_size": 3, "tags": ["hard", 2]}', '{"id": 2}']
    first, other = read(write(tmp_path, *lines)).rows
    assert (first.samples, first.min_samples, first.tags) == (4, 3, ("hard", "2"))
    assert (other.samples, other.min_samples, other.tags) == (None, None, ())


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ('"group_size": 0', "group_size is 0, not a whole number"),
        ('"group_size": "4"', "group_size is '4', not a whole number"),
        ('"min_group_size": true', "min_group_size is True"),
        ('"group_size": 2, "min_group_size": 3', "min_group_size 3 is more than its group_size 2"),
    ],
)
def test_a_size_that_no_group_can_have_is_refused_at_the_start(
    tmp_path: Path, members: str, reason: str
) -> None:
    with pytest.raises(TasksRejected, match="line 2") as caught:
        read(write(tmp_path, '{"id": "a"}', f'{{"id": "b", {members}}}'))
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ('"id": true', "id is true, not a text or a whole number"),
        ('"id": null', "id is null, not a text or a whole number"),
        ('"id": 1.5', "id is 1.5, not a text or a whole number"),
        ('"id": {"a": 1}', 'id is {"a": 1}, not a text'),
        ('"id": ["a"]', 'id is ["a"], not a text'),
        ('"id": ""', 'id is "", which names no task'),
        ('"id": " \\n"', 'id is " \\n", which names no task'),
        (f'"id": "{"b" * 65_537}"', "the id has 65,537 characters, and a session takes 65,536"),
        ('"id": "b", "tags": "gpu"', 'tags is "gpu", not a list of texts'),
        ('"id": "b", "tags": {"gpu": 1}', 'tags is {"gpu": 1}, not a list'),
        ('"id": "b", "tags": ["gpu", null]', "a tag is null, not a text"),
        ('"id": "b", "tags": [true]', "a tag is true, not a text"),
        ('"id": "b", "tags": [["gpu"]]', 'a tag is ["gpu"], not a text'),
        ('"id": "b", "tags": [""]', 'a tag is "", not a text'),
        ('"id": "b", "metadata": "x"', 'metadata is "x", not an object'),
        ('"id": "b", "metadata": ["x"]', 'metadata is ["x"], not an object'),
        ('"id": "b", "metadata": false', "metadata is false, not an object"),
        (f'"id": "b", "tags": "{"g" * 99}"', f'tags is "{"g" * 59}..., not a list'),
        (f'"id": {"1" * 5000}', "an integer has 5000 digits, and at most 4300 are read"),
        ('"id": 1e999', "1e999 is no finite number"),
        ('"id": "\\ud800"', "no low surrogate"),
    ],
)
def test_a_member_of_another_form_is_refused_with_its_line(
    tmp_path: Path, members: str, reason: str
) -> None:
    with pytest.raises(TasksRejected, match="line 2: ") as caught:
        read(write(tmp_path, '{"id": "a"}', f"{{{members}}}"))
    assert caught.value.reason.startswith(reason)


def test_tags_and_metadata_of_null_are_none(tmp_path: Path) -> None:
    (row,) = read(write(tmp_path, '{"id": "a", "tags": null, "metadata": null}')).rows
    assert (row.tags, row.metadata) == ((), {})


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_file_in_another_encoding_is_refused_with_line_and_byte(
    tmp_path: Path, encoding: str
) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b'{"id": "a"}\n' + '{"id": "k\u00e4se"}'.encode(encoding))
    with pytest.raises(TasksRejected, match=r"line 2: it is not UTF-8 \(byte 0x.. at column \d+"):
        read(path)


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ([], 0),
        (["{"], 1),
        (['{"id": "a"}', '{"name": "b"}'], 2),
        (['{"id": "a"}', "[]"], 2),
        (['{"id": NaN}'], 1),
    ],
    ids=["empty", "not JSON", "no id", "no object", "no number"],
)
def test_a_file_that_cannot_be_used_is_rejected(
    tmp_path: Path, lines: list[str], line: int
) -> None:
    with pytest.raises(TasksRejected) as caught:
        read(write(tmp_path, *lines))
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("members", "name"),
    [
        ('"id": "b", "id": "c"', "id"),
        ('"id": "b", "prompt": "x", "id": "b"', "id"),
        ('"id": "b", "tags": [], "tags": ["x"]', "tags"),
        ('"id": "b", "group_size": 2, "group_size": 3', "group_size"),
    ],
)
def test_a_member_that_stands_there_twice_is_refused(
    tmp_path: Path, members: str, name: str
) -> None:
    with pytest.raises(TasksRejected, match=f"line 2: '{name}' stands there twice"):
        read(write(tmp_path, '{"id": "a"}', f"{{{members}}}"))


def test_members_of_one_name_may_stand_in_several_objects(tmp_path: Path) -> None:
    line = '{"id": "a", "files": [{"id": 1}, {"id": 2}], "text": "\\"id\\": \\"id\\""}'
    assert len(read(write(tmp_path, line)).rows) == 1


def test_a_missing_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(TasksRejected) as caught:
        read(tmp_path / "none")
    assert str(caught.value) == f"{tmp_path}/none: No such file or directory"


def test_a_repeated_id_is_named_with_both_its_lines(tmp_path: Path) -> None:
    path = write(tmp_path, '{"id": "a"}', "", '{"id": 7}', '{"id": "b"}', '{"id": "7"}')
    with pytest.raises(TasksRejected) as caught:
        read(path)
    assert str(caught.value) == f"{path}, line 5: line 3 has the id '7', too"


def test_tasks_are_found_by_their_ids(tmp_path: Path) -> None:
    source = read(write(tmp_path, *rows(100)))

    assert [source.find(row.task_id) for row in source.rows] == list(source.rows)
    assert source.find("t100") is None


def test_a_line_may_hold_any_character_of_json(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"id": "a\u2028b"}\r\n{"id": "\x85"}\n', encoding="utf-8")

    assert [row.task_id for row in read(path).rows] == ["a\u2028b", "\x85"]


def test_a_file_that_changes_while_it_is_used_gives_no_wrong_task(tmp_path: Path) -> None:
    path = write(tmp_path, *rows(3))
    source = read(path)
    path.write_text("x" * 100)

    with pytest.raises(TasksRejected, match="changed while it was in use"):
        source.draw(0)


def test_another_file_in_its_place_changes_nothing(tmp_path: Path) -> None:
    source = read(write(tmp_path, *rows(3)))
    (tmp_path / "new").write_text('{"id": "other"}')
    (tmp_path / "new").rename(tmp_path / "tasks.jsonl")

    assert sorted(source.draw(number).task_id for number in range(3)) == ["t0", "t1", "t2"]
