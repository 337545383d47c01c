import pytest

from seamlessflow.producers.gateway.dialects.dialect import turn_of


@pytest.mark.parametrize(
    "response_id", ["chatcmpl-a1.2", "cmpl-a1.2", "msg_a1.2", "resp_a1.2", "a1.2"]
)
def test_a_response_of_any_dialect_names_its_turn(response_id: str) -> None:
    assert turn_of(response_id) == "a1.2"
