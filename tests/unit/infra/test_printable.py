"""Text from outside, as it may be shown."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.infra.printable import printable, printable_with_colours, seconds


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain äöü 日本 😀\n\tnext", "plain äöü 日本 😀\n\tnext"),
        ("\x1b]0;title\x07", "␛]0;title␇"),
        ("\x1b[2J\x1b[1A", "␛[2J␛[1A"),
        ("\x1b]52;c;aGVsbG8=\x1b\\", "␛]52;c;aGVsbG8=␛\\"),
        ("\x9b31m\x9d0;t\x9c", "\ufffd31m\ufffd0;t\ufffd"),
        ("safe\rover\x08\x7f\x00", "safe␍over␈␡␀"),
        ("abc\u202egnp.exe\u2066", "abc\ufffdgnp.exe\ufffd"),
    ],
)
def test_a_control_code_is_a_visible_sign(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_colours_of_a_library_may_stay() -> None:
    assert printable_with_colours("\x1b[1;31mred\x1b[0m \x1b[2J") == "\x1b[1;31mred\x1b[0m ␛[2J"


@given(st.text())
def test_nothing_but_tab_and_line_feed_controls_anything(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert not [sign for sign in shown if unicodedata.category(sign) == "Cc" and sign not in "\t\n"]
    assert printable(shown) == shown


def test_a_time_has_three_digits_and_a_long_one_all_of_them() -> None:
    assert [seconds(value) for value in (0.0344, 999.4, 12_345.6)] == [
        "0.0344 s",
        "999 s",
        "12,346 s",
    ]
