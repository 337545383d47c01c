"""Scorers of answers, with the traps of each."""

from typing import Any

import pytest

from seamlessflow.producers.scorers.answers import final_answer
from seamlessflow.producers.scorers.numbers import numeric
from seamlessflow.producers.scorers.programs import unit_tests
from seamlessflow.producers.scorers.registry import judge, scorer
from seamlessflow.producers.scorers.structures import json_schema
from seamlessflow.producers.scorers.texts import choice, exact

MINUS = "\u2212"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{42}.", "42"),
        (r"\boxed{1}, no: $\boxed{\frac{1}{2}}$", r"\frac{1}{2}"),
        (r"\boxed{a \boxed{b}}", "b"),
        (r"\boxed{7} and \boxed{8", "7"),
        ("<think>it is \\boxed{3}</think>\n4", "4"),
        ("<think>a</think> b <think>c</think> **d**", "d"),
        ("<think>\\boxed{3} but", ""),
        ("first</think> second", "second"),
        ("<answer> x </answer> <ANSWER>y\nz</ANSWER>", "y\nz"),
        ("5 + 4 = 9\n#### 1,234", "1,234"),
        ("The answer is: 12.", "12"),
        ("Answer: 3\nThe final answer is $5$.", "5"),
        ("**Answer:** 5", "5"),
        ("just this.", "just this"),
        ("and so on...", "and so on..."),
        ("", ""),
    ],
)
def test_the_final_answer_is_what_a_text_marks_last(text: str, answer: str) -> None:
    assert final_answer(text) == answer


@pytest.mark.parametrize(
    ("answer", "reference", "score"),
    [
        ("42", 42, 1),
        (r"\boxed{42}", "42", 1),
        ("41", 42, 0),
        ("", 42, 0),
        ("none", 42, 0),
        (f"{MINUS}5", -5, 1),
        ("\u20135", "-5", 1),
        ("- 5", -5, 1),
        ("5", -5, 0),
        ("+5", 5, 1),
        ("1,234,567", 1234567, 1),
        ("1 234 567", 1234567, 1),
        ("1\u202f234", 1234, 1),
        ("1'234.5", 1234.5, 1),
        ("1.234.567", 1234567, 1),
        ("1,234", 1.234, 0),
        ("0,5", 0.5, 1),
        ("3,14", 3.14, 1),
        ("0,500", 0.5, 1),
        ("1,234.50", 1234.5, 1),
        ("1{,}234", 1234, 1),
        ("3/4", 0.75, 1),
        (r"\frac{3}{4}", 0.75, 1),
        (r"-\dfrac{3}{4}", -0.75, 1),
        (r"\frac34", "3/4", 1),
        ("½", 0.5, 1),
        ("1½", 1.5, 1),
        ("1 1/2", 1.5, 1),
        ("1/0", 1, 0),
        ("0.3333", "1/3", 0),
        ("50%", 0.5, 1),
        (r"50\%", 50, 1),
        ("0.5%", 0.5, 0),
        ("50", "50%", 1),
        ("0.5", "50%", 1),
        ("5", "50%", 0),
        ("50%", "50 %", 1),
        ("42 apples", 42, 1),
        ("42 apple", "42 apples", 1),
        ("5 km", "5 m", 0),
        ("5 km", "5 km", 1),
        ("5", "5 km", 1),
        ("5 m²", "5", 1),
        ("$1,000", 1000, 1),
        (r"\$1{,}000", "1000 dollars", 1),
        ("-$5", -5, 1),
        ("$-5", -5, 1),
        ("€5", "$5", 0),
        ("30°", 30, 1),
        (r"30^\circ", 30, 1),
        ("1e3", 1000, 1),
        ("1.2 \u00d7 10^3", 1200, 1),
        ("1.2 \u00d7 10³", 1200, 1),
        (r"1.2 \times 10^{-3}", 0.0012, 1),
        ("\uff11\uff12", 12, 1),
        ("4 or 5", 5, 0),
        ("5, that is 5.0", 5, 1),
        ("12 + 30 = 42", 42, 1),
        ("First 12.\nThen 30.\nx = 42 apples.", 42, 1),
        ("<think>7</think>The answer is 8", 7, 0),
        ("<think>7</think>The answer is 8", 8, 1),
        ("7 is the answer\n<think>7", 7, 0),
        (r"\boxed{1} \boxed{2}", 2, 1),
        ("1e999999999", 1, 0),
        ("9" * 5_000, 9, 0),
        ("nan", 1, 0),
        ("inf", 1, 0),
    ],
)
def test_numbers(answer: str, reference: Any, score: float) -> None:
    assert numeric(answer, reference) == score


def test_a_tolerance_is_relative_to_the_reference() -> None:
    assert numeric("0.333", "1/3", tolerance=0.01) == 1.0
    assert numeric("0.3", "1/3", tolerance=0.01) == 0.0
    assert numeric("1e-9", 0) == 0.0


@pytest.mark.parametrize("reference", ["", "none", "4 or 5"])
def test_a_reference_without_a_number_is_no_score_of_0(reference: str) -> None:
    with pytest.raises(ValueError, match="is not one number"):
        numeric("4", reference)


@pytest.mark.parametrize(
    ("answer", "reference", "score"),
    [
        ("B", "B", 1),
        ("b", "(B)", 1),
        ("(B)", "B", 1),
        ("B.", "B", 1),
        ("B) because of A", "B", 0),
        ("**B**", "B", 1),
        (r"\boxed{\text{(B)}}", "B", 1),
        ("Option B: the dog", "B", 1),
        ("The answer is B", "b", 1),
        ("The answer is (C).", "C", 1),
        ("A dog, so it is B", "B", 1),
        ("It is a B", "B", 1),
        ("A or B", "B", 0),
        ("A, B, C, D", "A", 0),
        ("Not A.\nB", "B", 1),
        ("<think>A</think> B", "A", 0),
        ("Because", "B", 0),
        ("", "B", 0),
        ("C", "B", 0),
    ],
)
def test_choices(answer: str, reference: str, score: float) -> None:
    assert choice(answer, reference) == score


@pytest.mark.parametrize("reference", ["", "AB", 1, "Z"])
def test_a_reference_that_is_no_letter_is_refused(reference: Any) -> None:
    with pytest.raises(ValueError, match="is no letter from A to J"):
        choice("A", reference)


@pytest.mark.parametrize(
    ("answer", "reference", "score"),
    [
        ("Paris", "paris", 1),
        (" The answer is: 'Paris'. ", "Paris", 1),
        ("New\n York", "New York", 1),
        ("London, Paris", "Paris", 0),
        ("a-b", "a\u2212b", 1),
        ("\uff50aris", "Paris", 1),
        ("Lyon", ["Paris", "Lyon"], 1),
        ("-5", "5", 0),
        ("42", 42, 1),
        ("", "x", 0),
    ],
)
def test_exact_texts(answer: str, reference: Any, score: float) -> None:
    assert exact(answer, reference) == score


SCHEMA = {
    "type": "object",
    "required": ["n"],
    "properties": {"n": {"type": "integer"}},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ('{"n": 1}', 1),
        ('Here:\n```json\n{"n": 1}\n```\ndone', 1),
        ('```\n{"n": "a"}\n```\n```json\n{"n": 2}\n```', 1),
        ('<think>{"n": "a"}</think> {"n": 3}', 1),
        ('<think>{"n": 3}', 0),
        ('{"n": "1"}', 0),
        ('{"n": NaN}', 0),
        ('{"n": 1, "m": 2}', 0),
        ("n: 1", 0),
        ('{"n": 1} {"n": 2}', 0),
        ("", 0),
    ],
)
def test_json_of_a_schema(answer: str, score: float) -> None:
    assert json_schema(answer, SCHEMA) == score


@pytest.mark.parametrize(
    "schema", ["text", {"type": "whole"}, {"$ref": "http://127.0.0.1:9/schema.json"}]
)
def test_a_reference_that_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(ValueError, match="the reference"):
        json_schema("{}", schema)


@pytest.mark.parametrize(
    ("answer", "reference", "score"),
    [
        (r"\boxed{\frac12}", "0.5", 1),
        (r"\boxed{x^2+2x+1}", "(x+1)^2", 1),
        (r"\boxed{\sqrt{8}}", r"2\sqrt{2}", 1),
        (f"{MINUS}3", "-3", 1),
        ("3", "-3", 0),
        (r"\boxed{\{1,2\}}", r"\{2,1\}", 1),
        (r"\boxed{(1,2)}", "(2,1)", 0),
        ("so\n\n$x = 4$", "4", 1),
        ("<think>5</think> The answer is $6$", "5", 0),
        (r"\boxed{1} then \boxed{2}", "1", 0),
        ("9^9^9^9^9", "1", 0),
        ("", "1", 0),
    ],
)
def test_mathematics(answer: str, reference: str, score: float) -> None:
    assert scorer("math")(answer, reference) == score


TESTS = "assert add(1, 2) == 3\nassert add(-1, 1) == 0\n"
ADD = "def add(a, b):\n    return a + b\n"


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        (ADD, 1),
        (f"<think>hm</think>So:\n```python\n{ADD}```\nDone.", 1),
        (f"```\nadd = None\n```\n```python\nimport math\n{ADD}```", 1),
        (f"{ADD}print('x')\n", 1),
        ("def add(a, b):\n    return 3\n", 0),
        ("", 0),
        ("no code", 0),
        ("import sys\nsys.exit(0)", 0),
        ("import os\nos._exit(0)", 0),
        ("import os\nprint('0' * 64)\nos._exit(0)", 0),
        ("while True: pass", 0),
        (f"<think>{ADD}", 0),
    ],
)
def test_programs(answer: str, score: float) -> None:
    assert unit_tests(answer, TESTS, cpu_s=2) == score


def test_tests_that_are_no_python_are_refused() -> None:
    with pytest.raises(ValueError, match="the reference is no Python"):
        unit_tests(ADD, "assert add(")


def test_a_judge_reads_the_scorer_and_the_answer_of_the_task() -> None:
    task = {"id": "1", "scorer": "numeric", "answer": "4"}
    assert judge(task, "so 4") == judge(task, {"answer": "so 4"}) == 1.0
    with pytest.raises(ValueError, match="no text"):
        judge(task, {"text": "4"})
    with pytest.raises(ValueError, match="the task has no scorer and answer"):
        judge({"id": "1"}, "4")
    with pytest.raises(ValueError, match="there is no scorer 'sum', but exact, choice"):
        judge({**task, "scorer": "sum"}, "4")
