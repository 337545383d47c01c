"""Sums as tasks of Inspect. Read by the package, not by the tests."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, includes, match, model_graded_qa, scorer
from inspect_ai.solver import generate, system_message, use_tools
from inspect_ai.tool import tool

SAMPLES = [
    Sample("What is 2 + 3?", target="5", metadata={"level": 1, "digits": [2, 3]}),
    Sample("What is 2 + 4?", target="6", id="second"),
]


@tool
def add():
    async def execute(a: int, b: int) -> str:
        """Add two numbers.

        Args:
            a: First.
            b: Second.
        """
        return str(a + b)

    return execute


@scorer(metrics=[])
def valued():
    async def score(state, target):
        return Score(value=state.metadata["value"])

    return score


@task
def sums(messages=None, begun=""):
    steps = [system_message(begun)] if begun else []
    steps += [use_tools(add()), generate()]
    return Task(SAMPLES, solver=steps, scorer=[match(), includes()], message_limit=messages)


@task
def scored(values):
    samples = [Sample("Go.", metadata={"value": value}) for value in values]
    return Task(samples, solver=generate(), scorer=valued())


@task
def graded():
    return Task(SAMPLES, solver=generate(), scorer=model_graded_qa())


@task
def slow():
    return Task(SAMPLES, solver=generate(), scorer=match(), time_limit=0)


@task
def contained(sandbox):
    return Task(SAMPLES, solver=generate(), scorer=match(), sandbox=sandbox)
