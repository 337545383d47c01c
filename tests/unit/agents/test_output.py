"""The last line of a program's output, however it was printed."""

import io
import json
import math

import pytest

from seamlessflow.producers.agents.harness.output import LONGEST_LINE_BYTES, result_in
from tests.builders.line_forms import LINE_FORMS, SEPARATORS, Written

RESULT = {"reward": 0.25, "text": SEPARATORS}
LINE = json.dumps(RESULT, ensure_ascii=False).encode()


def read(output: bytes) -> object:
    return result_in(io.BytesIO(output))


@pytest.mark.parametrize("written", LINE_FORMS.values(), ids=LINE_FORMS)
def test_the_last_line_is_the_result_however_it_was_written(written: Written) -> None:
    assert read(written([b"working", b"{}", LINE])) == RESULT


@pytest.mark.parametrize(
    "output",
    [
        b"\x1b[32m" + LINE + b"\x1b[0m\n",
        LINE + b"\n\x1b[0m\n",
        b"\x1b]0;a title\x07\x1b[1;31m" + LINE + b"\x1b(B\x1b[m\r\n\x1b[?25h",
        b"\x1b]8;;http://x\x1b\\" + LINE + b"\x1b]8;;\x1b\\",
        b" 10 %\r100 %\r" + LINE + b"\r\n",
        b"not UTF-8: \xff\xfe\n" + LINE,
    ],
)
def test_what_a_terminal_does_not_show_is_no_part_of_the_result(output: bytes) -> None:
    assert read(output) == RESULT


@pytest.mark.parametrize("size", [70_000, 2_000_000, LONGEST_LINE_BYTES - 100])
def test_a_long_line_is_read_whole(size: int) -> None:
    long = json.dumps({"reward": 1, "text": "x" * size}).encode()
    expected = {"reward": 1, "text": "x" * size}
    assert read(b"begin\n" + long + b"\n\n") == expected
    assert read(long) == expected


@pytest.mark.parametrize("before", [0, 4 * LONGEST_LINE_BYTES])
def test_a_line_that_is_too_long_is_named(before: int) -> None:
    long = json.dumps({"reward": 1, "text": "x" * LONGEST_LINE_BYTES}).encode()
    assert read(b"y" * before + long) == {
        "last_line": f"a line of more than {LONGEST_LINE_BYTES} bytes"
    }


def test_a_long_output_before_the_last_line_is_not_in_the_way() -> None:
    assert read(b"x" * 3_000_000 + b"\n" + LINE) == RESULT
    assert read(LINE + b"\n" + b" " * 3_000_000 + b"\n" + b"\n" * 70_000) == RESULT


def test_a_number_that_is_no_reward_is_read_and_then_refused_as_such() -> None:
    number = read(b'{"reward": NaN}\n')
    assert isinstance(number, dict)
    assert math.isnan(number["reward"])
    assert read(b"-Infinity") == -math.inf
    assert read(b'{"reward": 1' + b"0" * 400 + b"}") == {"reward": 10**400}


@pytest.mark.parametrize(
    ("output", "line"),
    [(b"", ""), (b"\n", ""), (b"[1]\n", "[1]"), (b'{\n  "reward": 1\n}\n', "}"), (b"done", "done")],
)
def test_an_output_without_a_result_is_told_by_its_last_line(output: bytes, line: str) -> None:
    assert read(output) == {"last_line": line}


@pytest.mark.parametrize("deep", [b"[" * 100_000, b"1" * 10_000])
def test_a_line_that_python_refuses_to_read_is_no_result(deep: bytes) -> None:
    assert read(deep) == {"last_line": deep.decode()}
