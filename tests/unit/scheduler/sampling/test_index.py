"""The index of a source: keys and pools of its tasks, the same from a file and from memory."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from seamlessflow.scheduler.sampling.index import TaskIndex, indexed
from seamlessflow.scheduler.state.arms import arm_hash
from seamlessflow.scheduler.tasks.file import TaskFile, TasksRejected
from seamlessflow.scheduler.tasks.forks import fork_file, fork_line
from seamlessflow.scheduler.tasks.source import TaskRow
from tests.builders.records.forks import forked
from tests.builders.scheduler.sampling import source_of


def pools(rows: Sequence[TaskRow], by: str | None = None) -> list[str]:
    index = indexed(rows, "train", by)
    return [index.pool(place) for place in range(len(index))]


def file_of(path: Path, *tasks: Mapping[str, object]) -> TaskFile:
    path.write_text("\n\n".join(json.dumps(task) for task in tasks))
    return TaskFile(path)


def test_a_task_is_found_by_the_key_of_its_arm() -> None:
    index = indexed(source_of(100).rows, "train", None)
    assert len(index) == 100
    for place in range(100):
        key = arm_hash(f"task:train-{place}")
        assert (index.key(place), index.place(key)) == (key, place)
    assert index.place(arm_hash("task:train-100")) is None


@pytest.mark.parametrize("key", [0, 2**64 - 1])
def test_a_key_at_either_end_is_looked_up_like_any_other(key: int) -> None:
    assert indexed(source_of(3).rows, "train", None).place(key) is None


def test_levels_are_pools_if_all_tasks_have_one() -> None:
    words = {place: {"level": str(place % 2)} for place in range(3)}
    assert pools(source_of(3, metadata=words).rows) == [
        "pool:level:0",
        "pool:level:1",
        "pool:level:0",
    ]
    assert pools(source_of(4, metadata=words).rows) == ["source:train"] * 4


def test_a_field_that_is_named_makes_pools_of_those_that_have_it() -> None:
    words = {0: {"book": "a", "level": "1"}, 2: {"book": "b", "level": "1"}}
    rows = source_of(3, metadata=words).rows
    assert pools(rows, "book") == ["pool:book:a", "source:train", "pool:book:b"]


@pytest.mark.parametrize("field", ["task", "source"])
def test_a_pool_is_never_the_arm_of_a_task_or_of_a_source(field: str) -> None:
    words = {0: {field: "train-0"}, 1: {field: "train"}}
    (first, second) = pools(source_of(2, metadata=words).rows, field)
    assert first != "task:train-0"
    assert second != "source:train"


def test_a_file_is_indexed_as_its_rows_are(tmp_path: Path) -> None:
    file = file_of(
        tmp_path / "tasks.jsonl",
        {"id": "é", "metadata": {"level": 3}, "q": "level"},
        {"id": 7, "metadata": {"level": None}},
        {"id": "c", "metadata": {"level": "3"}},
    )
    rows = list(file)
    made: list[TaskIndex] = [indexed(file, "s", None), indexed(rows, "s", None)]
    first, second = ([(i.key(place), i.pool(place)) for place in range(3)] for i in made)
    assert first == second
    assert [pool for _, pool in first] == ["pool:level:3", "pool:level:None", "pool:level:3"]
    assert pools(file, "none") == ["source:train"] * 3


def test_forks_are_in_the_pools_of_their_tasks(tmp_path: Path) -> None:
    path = tmp_path / "forks.jsonl"
    task = {"id": "t", "metadata": {"level": 4}}
    path.write_bytes(fork_line("f", task, 2, forked()) + b"\n")
    file = fork_file(path)
    assert pools(file) == pools(list(file)) == ["pool:level:4"]
    assert indexed(file, "s", None).place(arm_hash("task:f")) == 0


@pytest.mark.parametrize(
    "now",
    [
        "",
        '{"id":"a"}',
        '{"id":"a"}\n[1]',
        '{"id":"a"}\n{"i":1}',
        "x" * 30,
        '{"id":"aa"}\n{"id":"b"}',
    ],
)
def test_a_file_that_changed_is_refused(tmp_path: Path, now: str) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"id":"a"}\n{"id":"b"}')
    file = TaskFile(path)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_TRUNC), "w") as same:
        same.write(now)
    with pytest.raises(TasksRejected, match="it changed while it was in use: no task at byte"):
        indexed(file, "train", None)
