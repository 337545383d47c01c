import pytest
from pydantic import SecretStr

from seamlessflow.producers.gateway.calls.keys import Keys, derived_admin_key
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.producers.gateway.exchange import key_of

SECRET = "a secret of the gateways"
KEYS = Keys(SECRET)


def bearing(key: str) -> dict[bytes, bytes]:
    return {b"authorization": b"Bearer " + key.encode()}


def status_of(error: pytest.ExceptionInfo[ApiError]) -> int:
    return error.value.status


@pytest.mark.parametrize("session", ["s", "run-1.0.2", "with.dots:and@more", "ä"])
def test_a_key_names_its_session_to_every_gateway_with_the_secret(session: str) -> None:
    key = KEYS.session_key(session)
    assert key.startswith("sf-")
    assert Keys(SECRET).session_of(key.encode()) == session


def test_a_key_of_a_traced_session_names_the_session_too() -> None:
    key = KEYS.session_key("s", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    assert KEYS.session_of(key.encode()) == "s"
    assert KEYS.session_of(key.replace(".", ".x", 1).encode()) is None


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"sf-",
        b"sf-.",
        b"sk-abc",
        b"sf-cw",
        b"sf-cw.",
        b"sf-\xff.\xff",
        b"sf-c.c",
        Keys("another secret").session_key("s").encode(),
        KEYS.session_key("s").encode()[:-1],
        KEYS.session_key("s").encode()[3:],
        derived_admin_key(SECRET).encode(),
    ],
    # Keys have the time in them, and all processes must collect the same tests.
    ids=[*"abcdefgh", "another secret", "cut", "no prefix", "admin"],
)
def test_a_key_that_was_not_signed_with_the_secret_names_no_session(key: bytes) -> None:
    assert KEYS.session_of(key) is None


def test_a_changed_session_voids_the_signature() -> None:
    _, end, signature = KEYS.session_key("a").split(".")
    named, _, _ = KEYS.session_key("b").split(".")
    assert KEYS.session_of(f"{named}.{end}.{signature}".encode()) is None


@pytest.mark.parametrize("end", ["99999999999", "", "-1", "\N{SUPERSCRIPT TWO}", "9" * 400, "1e9"])
def test_a_changed_end_voids_the_signature(end: str) -> None:
    named, _, signature = KEYS.session_key("a").split(".")
    assert KEYS.session_of(f"{named}.{end}.{signature}".encode()) is None


def test_a_key_is_refused_once_its_time_is_over() -> None:
    now = [1_000_000_000_000]
    keys = Keys(SECRET, clock=lambda: now[0])
    key = keys.session_key("s", end_ms=now[0] + 60_000).encode()
    now[0] += 60_000
    assert keys.session_of(key) == "s"
    now[0] += 1
    for check in (keys.require_any, keys.require_admin, lambda sent: keys.session_of(key)):
        with pytest.raises(ApiError, match="expired at 2001-09-09T01:47:40") as error:
            check(bearing(key.decode()))
        assert (status_of(error), error.value.code) == (401, "session_key_expired")


def test_an_api_key_has_its_name_and_another_one_none() -> None:
    keys = Keys(SECRET, api_keys={"team": SecretStr("sk-team"), "other": SecretStr("sk-other")})
    assert [keys.key_name(key) for key in (b"sk-team", b"sk-other", b"sk-tean", b"", b"\xff")] == [
        "team",
        "other",
        None,
        None,
        None,
    ]


def test_the_admin_key_is_the_one_set_or_made_of_the_secret() -> None:
    assert KEYS.is_admin(derived_admin_key(SECRET).encode())
    assert Keys(SECRET, "chosen").is_admin(b"chosen")
    assert not Keys(SECRET, "chosen").is_admin(derived_admin_key(SECRET).encode())
    assert not KEYS.is_admin(b"")


def test_a_session_key_is_no_admin_key() -> None:
    KEYS.require_admin(bearing(derived_admin_key(SECRET)))
    for headers, status in ((bearing(KEYS.session_key("s")), 403), ({}, 401)):
        with pytest.raises(ApiError) as error:
            KEYS.require_admin(headers)
        assert status_of(error) == status


def test_any_valid_key_may_list_models() -> None:
    KEYS.require_any(bearing(KEYS.session_key("s")))
    KEYS.require_any(bearing(derived_admin_key(SECRET)))
    with pytest.raises(ApiError):
        KEYS.require_any(bearing("sk-other"))


@pytest.mark.parametrize(
    ("header", "key"),
    [
        (b"Bearer abc", b"abc"),
        (b"bearer  abc ", b"abc"),
        (b"Basic abc", b""),
        (b"Bearer", b""),
        (b"", b""),
    ],
)
def test_the_bearer_scheme_is_read_in_any_case(header: bytes, key: bytes) -> None:
    assert key_of({b"authorization": header}) == key


def test_an_api_key_header_counts_where_there_is_no_bearer() -> None:
    key = KEYS.session_key("s").encode()
    KEYS.require_any({b"x-api-key": key})
    KEYS.require_any({b"x-goog-api-key": key})
    assert key_of({b"x-api-key": b"k", b"authorization": b"Bearer t"}) == b"t"
