"""Records as JSON objects with base64 for bytes."""

import pytest

from seamlessflow.schemas.json_form import from_json, to_json
from seamlessflow.schemas.records import ReplyAddress, TurnStarted
from tests.builders.records.sessions import started


def test_a_record_comes_back_with_all_its_bytes() -> None:
    record = started(suffix_ids=bytes(range(256)), new_messages=(b"\xff", b""))

    assert from_json(TurnStarted, to_json(record)) == record


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{", "Invalid JSON"),
        (b'{"partition": 1, "gateway": "g", "other": 1}', "other: Unexpected keyword argument"),
        (b'{"partition": 1, "gateway": 2}', "gateway: Input should be a valid string"),
        (b"{}", "partition: Field required"),
    ],
)
def test_another_object_is_refused_with_the_place_of_its_first_fault(
    text: bytes, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        from_json(ReplyAddress, text)
