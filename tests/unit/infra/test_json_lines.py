"""Lines of JSON, however a file of them was written."""

import io

import pytest

from seamlessflow.infra.json_lines import json_lines, line_content
from tests.builders.line_forms import LINE_FORMS, SEPARATORS, Written

LINES = [b'{"id": "1"}', f'{{"id": "{SEPARATORS}"}}'.encode(), b'{"id": "3"}']
every_form = pytest.mark.parametrize("written", LINE_FORMS.values(), ids=LINE_FORMS)


@every_form
def test_the_contents_are_the_same_in_every_form(written: Written) -> None:
    lines = list(json_lines(io.BytesIO(written(LINES))))
    assert [line.content for line in lines] == LINES


@every_form
def test_a_line_has_its_number_and_its_place_in_the_file(written: Written) -> None:
    text = written(LINES)
    physical = text.split(b"\n")
    for line in json_lines(io.BytesIO(text)):
        place = text[line.offset : line.offset + line.size]
        assert line_content(place) == line.content
        assert line.content in physical[line.number - 1]


def test_a_file_without_content_has_no_lines() -> None:
    assert list(json_lines(io.BytesIO(b"\xef\xbb\xbf\r\n\n \n"))) == []
    assert list(json_lines(io.BytesIO(b""))) == []
