"""The file of tasks and the order of draws."""

from pathlib import Path

import pytest

from scheduler.decisions.task_source import TasksRejected, read


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


def test_the_same_seed_draws_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, *rows(20))

    one, same, other = ([read(path, s).draw(n) for n in range(20)] for s in (1, 1, 2))
    assert one == same
    assert one != other


def test_unshuffled_tasks_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    source = read(write(tmp_path, *rows(3)), shuffled=False)

    assert [source.draw(number).task_id for number in range(4)] == ["t0", "t1", "t2", "t0"]


def test_a_task_keeps_all_its_fields(tmp_path: Path) -> None:
    (row,) = read(write(tmp_path, '{"key": [1], "id": 7, "metadata": {"level": 2}}', "")).rows

    assert row.task_id == "7"
    assert row.payload == b'{"id":7,"key":[1],"metadata":{"level":2}}'
    assert row.metadata == {"level": "2"}


@pytest.mark.parametrize(
    ("lines", "line"),
    [([], 0), (["{"], 1), (['{"id": "a"}', '{"name": "b"}'], 2), (['{"id": 1}', '{"id": "1"}'], 0)],
    ids=["empty", "not JSON", "no id", "twice"],
)
def test_a_file_that_cannot_be_used_is_rejected(
    tmp_path: Path, lines: list[str], line: int
) -> None:
    with pytest.raises(TasksRejected) as caught:
        read(write(tmp_path, *lines))
    assert caught.value.line == line


def test_a_missing_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(TasksRejected) as caught:
        read(tmp_path / "none")
    assert str(caught.value) == f"{tmp_path}/none: No such file or directory"
