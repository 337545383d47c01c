import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.schemas.json_text import read_json, write_json

EDGES = (
    *(2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**64 + 1, -(2**63), -(2**63) - 1, 10**30),
    *(10**400, -(10**400)),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(EDGES) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)


@given(json_values)
def test_what_is_written_is_read_to_the_digit(value: object) -> None:
    for spelling in (write_json(value), json.dumps(value).encode()):
        assert read_json(spelling) == value


@pytest.mark.parametrize("number", EDGES)
def test_an_integer_stays_one_wherever_it_stands(number: int) -> None:
    read = read_json(b'{"b":[%d],"a":{"c":%d},"t":"x"}' % (number, number))
    assert read == {"b": [number], "a": {"c": number}, "t": "x"}
    assert write_json(read, sort_keys=True) == b'{"a":{"c":%d},"b":[%d],"t":"x"}' % (number, number)


def test_a_float_stays_a_float() -> None:
    assert repr(read_json(b"[1.0,1e19,12345678901234567890.0,0.1]")) == repr(
        orjson.loads(b"[1.0,1e19,12345678901234567890.0,0.1]")
    )


@pytest.mark.parametrize(
    "text",
    [
        b"[18446744073709551616,NaN]",
        b"[18446744073709551616,1e400]",
        b'[18446744073709551616,"\\ud800"]',
        b"[18446744073709551616",
        b'[18446744073709551616,"\xff"]',
        b"1" * 5000,
        b"[" + b"1" * 400 + b',"\\ud800"]',
        b"[" + b"1" * 400 + b",1e999]",
        b"[" + b"1" * 400 + b",NaN]",
        b"[" + b"1" * 400 + b"[" * 100_000,
        b"[1e999]",
    ],
    ids=[
        *("NaN", "infinite", "half a character", "cut", "not UTF-8", "endless"),
        *("wider, half a character", "wider, infinite", "wider, NaN", "nested", "infinite alone"),
    ],
)
def test_a_wide_integer_lets_nothing_pass_that_is_no_json(text: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        read_json(text)


@pytest.mark.parametrize("value", [{1, 2}, object(), [2**64, {1}]])
def test_what_is_no_json_is_not_written(value: object) -> None:
    with pytest.raises(TypeError):
        write_json(value)


def test_an_integer_beyond_any_float_is_read_only_where_it_is_asked_for() -> None:
    text = b"1" * 400
    assert read_json(text) == int(text)
    with pytest.raises(orjson.JSONDecodeError, match="infinity"):
        read_json(text, beyond_float=False)
    assert read_json(b"1" * 300, beyond_float=False) == int(b"1" * 300)
