"""Headers by which a retry is recognized."""

import pytest

from seamlessflow.producers.gateway.calls.retries import idempotency_key, retry_count
from seamlessflow.producers.gateway.errors import ApiError

CODEX = b'{"turn_id":"01a1ff40-0c76","request_kind":"turn"}'


def codex(metadata: bytes, body: bytes = b"body") -> str | None:
    return idempotency_key({b"x-codex-turn-metadata": metadata}, body)


@pytest.mark.parametrize("count", [b"", b"-1", b"1e3", b"many", b"\xb2"])
def test_what_is_no_count_is_no_retry(count: bytes) -> None:
    assert retry_count({}) == retry_count({b"x-stainless-retry-count": count}) == 0


def test_a_vendor_s_client_counts_its_tries() -> None:
    assert retry_count({b"x-stainless-retry-count": b"2"}) == 2
    assert retry_count({b"x-stainless-retry-count": b"9" * 400}) < 10**9


def test_a_client_s_own_key_is_taken_as_it_is() -> None:
    headers = {b"idempotency-key": b"k\xe4", b"x-codex-turn-metadata": CODEX}

    assert idempotency_key(headers, b"body") == "k\xe4"
    assert idempotency_key({}, b"body") is None


def test_a_key_too_long_to_be_kept_is_refused() -> None:
    with pytest.raises(ApiError, match="over 256"):
        idempotency_key({b"idempotency-key": b"k" * 257}, b"body")


def test_codex_asks_again_when_it_sends_an_equal_body_for_the_same_turn() -> None:
    assert codex(CODEX) is not None
    assert codex(CODEX) == codex(CODEX.replace(b"}", b',"more":1}'))
    assert codex(CODEX) != codex(CODEX, b"longer")
    assert codex(CODEX) != codex(CODEX.replace(b"76", b"77"))


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"turn_id":7}',
        b'{"turn_id":""}',
        b'{"turn_id":"%b"}' % (b"x" * 999),
    ],
)
def test_metadata_that_names_no_turn_is_no_key(metadata: bytes) -> None:
    assert codex(metadata) is None
