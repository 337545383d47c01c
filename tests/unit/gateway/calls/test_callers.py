"""The session that a call belongs to, and headers by which a retry is recognized."""

import pytest
from pydantic import SecretStr, ValidationError

from seamlessflow.producers.gateway.calls.callers import (
    TAGS_HEADER,
    Callers,
    idempotency_key,
    retry_count,
    wishes_in,
)
from seamlessflow.producers.gateway.calls.keys import Keys, derived_admin_key
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.producers.gateway.settings import GatewaySection

SECRET = "a secret of the gateways"
SETTINGS = GatewaySection(
    secret=SecretStr(SECRET),
    api_keys={"team": SecretStr("sk-team")},
    policy="coder",
    modules={"planner": "thinker"},
    session_idle_s=60,
)
KEYS = Keys(SECRET, None, SETTINGS.api_keys)
CALLERS = Callers(KEYS, SETTINGS)
ADMIN = derived_admin_key(SECRET)
CODEX = b'{"turn_id":"01a1ff40-0c76","request_kind":"turn"}'


def bearing(key: str, **named: str) -> dict[bytes, bytes]:
    more = {name.replace("_", "-").encode(): value.encode() for name, value in named.items()}
    return {b"authorization": b"Bearer " + key.encode(), **more}


def session(headers: dict[bytes, bytes], path: str | None = None) -> tuple[str, bool]:
    """Return the session's id, and whether the call may begin it."""
    caller = CALLERS.caller(headers, path)
    return caller.session_id, caller.terms is not None


def status(headers: dict[bytes, bytes], path: str | None = None) -> int:
    with pytest.raises(ApiError) as refused:
        CALLERS.caller(headers, path)
    return refused.value.status


def test_a_key_stands_for_its_own_session_whatever_the_harness_calls_it() -> None:
    key = KEYS.session_key("s")
    assert session(bearing(key)) == ("s", False)
    assert session(bearing(key), "s") == ("s", False)
    assert session(bearing(key, x_session_id="mine")) == ("s", False)
    assert status(bearing(key), "other") == 403


def test_the_admin_key_acts_for_the_session_in_the_path_or_header() -> None:
    assert session(bearing(ADMIN), "s") == ("s", False)
    assert session(bearing(ADMIN, x_session_id="s")) == ("s", True)
    assert status(bearing(ADMIN)) == 401


@pytest.mark.parametrize(
    "header", ["x_session_id", "x_claude_code_session_id", "session_id", "x_parent_session_id"]
)
def test_with_an_api_key_the_header_of_the_harness_names_the_session(header: str) -> None:
    assert session(bearing("sk-team", **{header: "abc-1"})) == ("team.abc-1", True)


def test_an_api_key_alone_is_a_session() -> None:
    assert session(bearing("sk-team")) == ("team", True)
    assert session(bearing("sk-team"), "task-7") == ("team.task-7", True)
    assert status(bearing("sk-other")) == 401
    assert status({}) == 401


def test_a_sub_agent_is_part_of_its_parents_session() -> None:
    headers = bearing("sk-team", x_session_id="child", x_parent_session_id="parent")
    assert session(headers) == ("team.parent", True)


@pytest.mark.parametrize("name", ["", " ", "a/b", "a~1", "x" * 201, "ä"])
def test_what_is_no_name_is_refused(name: str) -> None:
    if name:
        assert status(bearing("sk-team", x_session_id=name)) == 400
    else:
        assert session(bearing("sk-team", x_session_id=name)) == ("team", True)


@pytest.mark.parametrize("path", ["a~1", "a b", "x" * 201, "\0"])
def test_a_path_that_begins_a_session_must_be_a_name_too(path: str) -> None:
    assert status(bearing("sk-team"), path) == 400
    assert session(bearing(ADMIN), path) == (path, False)


def test_an_empty_key_is_nobodys() -> None:
    with pytest.raises(ValidationError):
        GatewaySection(secret=SecretStr(SECRET), api_keys={"team": SecretStr("")})


def test_a_session_that_nobody_opened_begins_under_the_terms_of_the_settings() -> None:
    terms = CALLERS.caller(bearing("sk-team", user_agent="codex/1"), None).terms
    assert terms is not None
    assert (terms.policy, terms.policies) == ("coder", {"planner": "thinker"})
    assert (terms.agent, terms.max_idle_ms) == ("codex/1", 60_000)


def test_a_call_asks_for_tags_by_its_header() -> None:
    assert wishes_in({}) == ()
    assert wishes_in({TAGS_HEADER: b"hw:H20, decode!"}) == ("hw:H20", "decode!")
    with pytest.raises(ApiError, match=r"x-seamlessflow-tags: .* 'decode' meant"):
        wishes_in({TAGS_HEADER: b"decod"})


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
