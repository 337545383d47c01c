"""From a row to the task that it is."""

import random
from typing import Any

import pytest

from seamlessflow.scheduler.tasks.prepared.choosing import RowChoice, content_id, part_of
from seamlessflow.scheduler.tasks.prepared.settings import TaskDataSection
from tests.seed import seed


def tasks(rows: list[dict[str, Any]], for_evaluation: bool = False, **choice: Any) -> list[Any]:
    chosen = RowChoice(TaskDataSection(**choice), for_evaluation)
    return [task for row in rows if (task := chosen.task(row)) is not None]


def test_a_map_names_columns_and_members_inside_them() -> None:
    row = {"id": 1, "reward_model": {"truth": "4"}, "a.b": 5, "level": 3}
    chosen = {"id": "id", "answer": "reward_model.truth", "x": "a.b", "metadata": {"hard": "level"}}
    assert tasks([row], map=chosen) == [
        {"id": 1, "answer": "4", "x": 5, "metadata": {"hard": 3}},
    ]


@pytest.mark.parametrize(
    ("value", "wanted", "meets"),
    [
        (1, 1, True),
        (1.0, 1, True),
        ("1", 1, True),
        (1, "1", True),
        (True, 1, False),
        (1, True, False),
        (True, True, True),
        ("true", True, True),
        (None, None, True),
        ("", None, False),
        (None, "None", False),
        ("a", ["b", "a"], True),
        ("A", ["b", "a"], False),
        (2, [1, 3], False),
        ([1], [1], False),
        (1, [], False),
    ],
)
def test_a_row_is_a_task_if_it_has_a_wanted_value(value: Any, wanted: Any, meets: bool) -> None:
    assert bool(tasks([{"id": "a", "level": value}], where={"level": wanted})) == meets


def test_all_columns_must_have_a_wanted_value() -> None:
    rows = [{"id": f"{a}{b}", "a": a, "b": {"c": b}} for a in (1, 2) for b in (1, 2)]
    chosen = tasks(rows, where={"a": 1, "b.c": [2]})
    assert [task["id"] for task in chosen] == ["12"]


def test_a_column_that_a_row_lacks_counts_as_null() -> None:
    assert [task["id"] for task in tasks([{"id": 1}, {"id": 2, "x": 0}], where={"x": None})] == [1]


def test_training_and_evaluation_share_no_task_and_lack_none() -> None:
    draw = random.Random(seed)
    share = draw.uniform(0.05, 0.95)
    rows = [{"id": f"{draw.getrandbits(64):x}"} for _ in range(2_000)]
    trained = tasks(rows, held_back=share)
    held_back = tasks(rows, for_evaluation=True, held_back=share)
    assert not {task["id"] for task in trained} & {task["id"] for task in held_back}
    assert len(trained) + len(held_back) == len(rows)
    assert len(held_back) == pytest.approx(share * len(rows), abs=5 * (len(rows) / 4) ** 0.5)


def test_the_part_of_an_id_is_the_same_for_ever() -> None:
    assert part_of("a") == 0.2071354416495947
    made = content_id({"b": 1, "a": "ü"})
    assert made == content_id({"a": "ü", "b": 1, "id": None}) == "e5c3356c10ea21d005ee7056f7921e5f"


@pytest.mark.parametrize(("share", "reason"), [(0.001, "holds none back"), (0.999, "all back")])
def test_a_share_that_leaves_nothing_is_named(share: float, reason: str) -> None:
    chosen = RowChoice(TaskDataSection(held_back=share), for_evaluation=share < 0.5)
    assert chosen.task({"id": "a"}) is None
    assert chosen.nothing_left() == f"held_back {share} of 1 tasks {reason}".replace(
        "all", "holds all"
    )
