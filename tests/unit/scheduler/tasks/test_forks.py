"""The file of forks, and the share of draws that they get."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import orjson
import pytest

from seamlessflow.scheduler.tasks.file import TaskFile, TasksRejected, source_of
from seamlessflow.scheduler.tasks.forks import fork_file, fork_line
from seamlessflow.scheduler.tasks.mixture import with_forks
from seamlessflow.scheduler.tasks.source import TaskRow, TaskSource, listed
from tests.builders.line_forms import LINE_FORMS, Written
from tests.builders.records.forks import forked

TASK = {"key": [1.50, "ä"], "id": 7, "metadata": {"level": 2}}


def write(folder: Path, *lines: bytes) -> Path:
    path = folder / "forks.jsonl"
    path.write_bytes(b"\n".join(lines))
    return path


def rows(*names: str) -> TaskSource:
    return listed([TaskRow(name, b"{}", {}) for name in names])


def test_a_fork_comes_back_with_its_task_and_its_beginning(tmp_path: Path) -> None:
    source = source_of(fork_file(write(tmp_path, fork_line("7~s~b", TASK, 4, forked()))))

    (row,) = source.rows
    assert row == source.find("7~s~b") == source.draw(5)
    assert (row.task_id, row.samples, row.metadata) == ("7~s~b", 4, {"level": "2"})
    assert row.payload == '{"id":7,"key":[1.5,"ä"],"metadata":{"level":2}}'.encode()
    assert row.fork == forked()


@pytest.mark.parametrize("written", LINE_FORMS.values(), ids=LINE_FORMS)
def test_forks_are_the_same_however_their_lines_were_written(
    written: Written, tmp_path: Path
) -> None:
    path = tmp_path / "forks.jsonl"
    path.write_bytes(written([fork_line(name, TASK, 4, forked()) for name in ("a", "b")]))
    assert [row.task_id for row in fork_file(path)] == ["a", "b"]


def test_a_wide_integer_of_a_task_keeps_its_digits(tmp_path: Path) -> None:
    line = fork_line("f", {**TASK, "answer": 2**64}, 4, forked())
    (row,) = source_of(fork_file(write(tmp_path, line))).rows
    assert b'"answer":18446744073709551616' in row.payload


def with_member(**changes: object) -> bytes:
    line = orjson.loads(fork_line("f", TASK, 4, forked()))
    return orjson.dumps(line | changes)


def with_fork(**changes: object) -> bytes:
    line = orjson.loads(fork_line("f", TASK, 4, forked()))
    return orjson.dumps(line | {"fork": line["fork"] | changes})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"id": "a"}', 'not a JSON object with "id", "task", "samples" and "fork"'),
        (b"{", "unexpected end of data"),
        (with_member(samples=0), "samples is 0, not 1 or more"),
        (with_fork(mode="backwards"), "fork.mode: neither of middle, playback"),
        (with_fork(other=1), "fork.other: Unexpected keyword argument"),
        (with_fork(hash="aGg="), "fork.hash: not 16 bytes"),
        (with_fork(prompt=None), "fork.prompt: goes with origin.behind prompt"),
        (with_fork(turns=[]), "fork.prompt.parent: not a turn before it"),
        (with_fork(appended=["bm8="]), "fork.appended: not a JSON object"),
    ],
)
def test_a_line_of_another_form_is_named_with_its_fault(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    path = write(tmp_path, fork_line("first", TASK, 4, forked()), line)
    with pytest.raises(TasksRejected) as caught:
        fork_file(path)
    assert caught.value.line == 2
    assert caught.value.reason.startswith(reason)


def test_a_fork_is_no_larger_than_the_gateway_takes(tmp_path: Path) -> None:
    large = replace(forked().turns[0], ids=bytes(8 * 1024 * 1024))
    path = write(tmp_path, fork_line("f", TASK, 4, forked(turns=(large,))))

    with pytest.raises(TasksRejected, match="line 1: the fork has 1"):
        fork_file(path)


def test_an_id_is_of_a_fork_or_of_a_task(tmp_path: Path) -> None:
    path = write(tmp_path, fork_line("a", TASK, 4, forked()))
    forks = fork_file(path)
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "b"}\n')

    forks.refuse_ids_of(TaskFile(tasks))
    tasks.write_text('{"id": "b"}\n{"id": "a"}\n')
    with pytest.raises(TasksRejected, match="line 2 has the id 'a', too"):
        forks.refuse_ids_of(TaskFile(tasks))


@pytest.mark.parametrize(
    ("share", "drawn"),
    [
        ("0", "abcabcabca"),
        ("0.25", "abcFabcGab"),
        ("0.3", "abcFabGcaF"),
        ("0.5", "aFbGcFaGbF"),
        ("1", "FGFGFGFGFG"),
    ],
)
def test_draws_are_forks_in_their_share_by_the_number_of_the_draw_alone(
    share: str, drawn: str
) -> None:
    source = with_forks([(rows("a", "b", "c"), Fraction(1))], rows("F", "G"), Fraction(share))

    assert "".join(source.draw(number).task_id for number in range(10)) == drawn
    assert source.draw(9) == source.draw(9)


def test_tasks_and_forks_are_found_by_their_ids() -> None:
    source = with_forks([(rows("a"), Fraction(1))], rows("F"), Fraction(1, 2))

    assert [row and row.task_id for row in map(source.find, ("a", "F", "x"))] == ["a", "F", None]
