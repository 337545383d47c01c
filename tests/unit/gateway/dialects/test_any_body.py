"""Damaged bodies: a dialect reads any bytes, or refuses them in its vendor's format."""

from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import Dialect
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.producers.gateway.routes import DIALECTS
from seamlessflow.schemas.codec import decode, encode
from tests.builders.gateway.bodies import BODIES
from tests.builders.gateway.damage import SPELLINGS, damaged, places, spelt
from tests.builders.records import replies
from tests.builders.records.commands import request_turn

MOST_CHOICES = 4
LARGEST = 1_000_000

every_dialect = pytest.mark.parametrize("path", list(DIALECTS))


def read(path: str, body: bytes) -> CanonicalRequest | ApiError:
    """Return the request in a body or its refusal, and check that either can be passed on."""
    dialect = DIALECTS[path]
    try:
        request = dialect.parse(body, MOST_CHOICES)
    except ApiError as error:
        _assert_told(path, dialect.error_body(error), error)
        return error
    _assert_goes_on_the_log(request)
    _assert_answerable(dialect, request)
    return request


def _assert_told(path: str, body: bytes, error: ApiError) -> None:
    answer = orjson.loads(body)
    assert 400 <= error.status < 500 and error.message
    if path == "/v1/messages":
        assert answer["type"] == "error"
        assert set(answer["error"]) >= {"type", "message"}
    elif path.startswith("/v1beta/"):
        assert set(answer["error"]) == {"code", "message", "status", "details"}
        assert answer["error"]["code"] == error.status
    else:
        assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert isinstance(answer["error"]["message"], str)
    assert len(body) < 10_000


def _assert_goes_on_the_log(request: CanonicalRequest) -> None:
    hashes = request.body_hashes()
    assert len(set(hashes)) == request.choices
    command = request_turn(
        body_hash=hashes[0],
        dialect=request.dialect,
        messages=request.messages,
        tools=request.tools,
        template_args=request.template_args,
        sampling=request.sampling,
        tool_choice=request.tool_choice,
        stream=request.stream,
        previous_turn=request.previous_turn,
        own_messages=request.own_messages,
        raw=request.raw,
    )
    assert decode(encode(command)) == command
    for stored in (*request.messages, request.tools or b"[]", request.template_args or b"{}"):
        orjson.loads(stored)


def _assert_answerable(dialect: Dialect, request: CanonicalRequest) -> None:
    answer = replies.answer()
    answers = [answer] * request.choices
    orjson.loads(dialect.completion("t", 1, request, answers))
    events = dialect.events("t", 1, request)
    assert events.open(1) + events.finish(0, answer) + events.end(answers)


def test_there_is_a_body_of_each_dialect() -> None:
    assert BODIES.keys() == DIALECTS.keys()


@every_dialect
def test_a_whole_body_is_read(path: str) -> None:
    assert isinstance(read(path, orjson.dumps(BODIES[path])), CanonicalRequest)


@every_dialect
@given(body=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_refused(path: str, body: bytes) -> None:
    assert isinstance(read(path, body), ApiError)


@every_dialect
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_body_with_a_few_wrong_places_is_read_or_refused(path: str, data: st.DataObject) -> None:
    body = data.draw(damaged(BODIES[path]))
    assume(len(body) < LARGEST)
    read(path, body)


@every_dialect
@pytest.mark.parametrize("number", range(len(SPELLINGS)), ids=lambda n: repr(SPELLINGS[n][:20]))
def test_what_no_json_writer_writes_is_read_or_refused_wherever_it_stands(
    path: str, number: int
) -> None:
    whole = BODIES[path]
    for place in places(whole):
        read(path, spelt(_replaced(whole, place, f"to be spelt: {number}")))


@every_dialect
@pytest.mark.parametrize("value", [None, True, 0, -1, 2**63, "x", "", [], {}, [[]], [None], [{}]])
def test_a_value_of_another_type_is_read_or_refused_wherever_it_stands(
    path: str, value: Any
) -> None:
    whole = BODIES[path]
    for place in places(whole):
        read(path, orjson.dumps(_replaced(whole, place, value)))


@every_dialect
def test_each_place_may_be_cut_or_end_the_body(path: str) -> None:
    body = orjson.dumps(BODIES[path])
    for end in range(len(body)):
        assert isinstance(read(path, body[:end]), ApiError)


def _replaced(whole: Any, place: tuple[str | int, ...], value: Any) -> Any:
    if not place:
        return value
    first, *rest = place
    copy = dict(whole) if isinstance(whole, dict) else list(whole)
    copy[first] = _replaced(whole[first], tuple(rest), value)  # type: ignore[index]
    return copy


@every_dialect
def test_ten_thousand_messages_are_read(path: str) -> None:
    whole = BODIES[path]
    many = {
        name: value * (10_000 // len(value)) if name in ("messages", "input", "contents") else value
        for name, value in whole.items()
    }
    read(path, orjson.dumps(many))


@every_dialect
@pytest.mark.parametrize("depth", [10, 100, 250, 400, 1000])
def test_what_is_nested_in_itself_is_read_or_refused(path: str, depth: int) -> None:
    whole = BODIES[path]
    for place in places(whole):
        inner = _at(whole, place)
        lists = [p for p in places(inner) if isinstance(_at(inner, p), list)]
        for within in lists or [()]:
            outer, hole = orjson.dumps(_replaced(inner, within, ["here"])), b'"here"'
            if outer.count(hole) != 1:
                continue
            before, after = outer.split(hole)
            nested = before * depth + orjson.dumps(inner) + after * depth
            body = orjson.dumps(_replaced(whole, place, "here")).replace(hole, nested)
            read(path, body)


def _at(body: Any, place: tuple[str | int, ...]) -> Any:
    for step in place:
        body = body[step]
    return body
