"""The example `swe_toy`: its repositories."""

from importlib import import_module
from typing import Any

EXAMPLE: Any = import_module("examples.swe_toy.repositories")  # has no annotations, as a user's


def listed(**settings: object) -> list[dict[str, Any]]:
    return list(EXAMPLE.Environment(**settings).tasks())


def functions(tasks: list[dict[str, Any]]) -> set[str]:
    return {task["id"].rpartition("-")[0] for task in tasks}


def test_it_lists_many_repositories_and_each_once() -> None:
    tasks = [*listed(), *listed(held_back=True)]
    assert len({task["id"] for task in tasks}) == len(tasks) > 100
    assert len({str(task["files"]) for task in tasks}) == len(tasks)


def test_no_function_that_is_held_back_is_trained_with_another_bug() -> None:
    assert functions(listed()) & functions(listed(held_back=True)) == set()


def test_each_template_is_in_the_training_and_among_those_held_back() -> None:
    trained, held_back = (
        {task["metadata"]["template"] for task in listed(held_back=part)} for part in (False, True)
    )
    assert trained == held_back == {name for name, *_ in EXAMPLE.TEMPLATES}
