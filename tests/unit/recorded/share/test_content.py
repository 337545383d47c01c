"""The form of a shared group: canonical JSON, and what is no content."""

import json
import random
from typing import Any

import pytest

from seamlessflow.recorded.share.content import (
    MOST_BYTES,
    ContentMalformed,
    SharedSession,
    canonical,
    name_of,
    read_content,
)
from tests.builders.shared_groups import answered, content_of


def plain(**changes: Any) -> dict[str, Any]:
    return {**json.loads(content_of().encode()), **changes}


def shuffled(value: Any, rng: random.Random) -> Any:
    if isinstance(value, list):
        return [shuffled(member, rng) for member in value]
    if isinstance(value, dict):
        names = list(value)
        rng.shuffle(names)
        return {name: shuffled(value[name], rng) for name in names}
    return value


def test_any_order_of_keys_is_the_same_canonical_json(rng: random.Random) -> None:
    encoded = content_of(answered(reward=0.5)).encode()
    for _ in range(20):
        assert canonical(shuffled(json.loads(encoded), rng)) == encoded
    assert canonical({"é": 1, "a": [1.5, None, "ü"]}) == '{"a":[1.5,null,"ü"],"é":1}'.encode()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_what_json_does_not_have_has_no_canonical_form(value: object) -> None:
    with pytest.raises(ValueError, match=r"JSON|surrogates"):
        canonical([value])


def test_a_content_is_read_back_and_named_by_its_bytes() -> None:
    content = content_of(answered(), answered(reward=0.0))
    encoded = content.encode()
    assert read_content(encoded).encode() == encoded
    assert [session.reward for session in read_content(encoded).sessions] == [1.0, 0.0]
    assert name_of(encoded) == name_of(content.encode()) != name_of(content_of().encode())


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (b"", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (json.dumps(plain()).encode(), "no canonical JSON"),
        (b'{"a":1,"a":1}', "no canonical JSON"),
        (b"NaN", "no JSON"),
        (b"1e400", "no JSON"),
        (b"[]", "no JSON object"),
        (canonical(plain(version=2)), "version"),
        (canonical(plain(task=[])), "task"),
        (canonical(plain(task={})), "id"),
        (canonical(plain(task={"id": True})), "id"),
        (canonical(plain(sessions=[])), "sessions"),
        (canonical(plain(sessions=[7])), "session"),
        (canonical(plain(sessions=[{"messages": [7], "reward": 1}])), "message"),
        (canonical(plain(sessions=[{"messages": [], "reward": True}])), "reward"),
        (canonical(plain(sessions=[{"messages": [], "reward": 10**400}])), "reward"),
        (canonical(plain(sessions=[{"messages": [], "reward": 1, "tools": {}}])), "tools"),
        (
            canonical(plain(sessions=[{"messages": [{"role": "assistant"}] * 300, "reward": 1}])),
            "300 answers",
        ),
        (canonical(plain(provenance=[])), "provenance"),
        (canonical(plain(provenance={"run": 1})), "provenance"),
        (canonical(plain(more="x" * MOST_BYTES)), "above"),
    ],
)
def test_what_is_no_content_is_refused_with_its_reason(encoded: bytes, reason: str) -> None:
    with pytest.raises(ContentMalformed, match=reason):
        read_content(encoded)


def test_the_text_of_a_session_is_its_answers_and_calls() -> None:
    assert answered().text.startswith('lookup {"key": ')
    assert "\n\ncode " in answered().text
    parts = {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"text": 7}, 7]}
    strange = {"role": "assistant", "content": 8, "tool_calls": [7, {"function": 9}]}
    asked = {"role": "user", "content": "not this"}
    assert SharedSession((asked, parts, strange), 1.0).text == "a\n7\n\n8"
