"""Only its own host, and only who has the token where others could ask."""

import pytest
from starlette.testclient import TestClient

from seamlessflow.console.web.app import application
from seamlessflow.console.web.guard import COOKIE, host_allowed, is_loopback, own_names
from seamlessflow.console.web.live import Broadcaster
from seamlessflow.infra.network.addresses import HOST
from tests.builders.console.memory_log import console_of, items_of
from tests.builders.records import control

TOKEN = "a-token-of-twenty-characters"


def client_of(host: str, token: str | None) -> TestClient:
    app = application(
        console_of(items_of("control", [control.claimed()])), Broadcaster(), host, token
    )
    return TestClient(app, base_url=f"http://{HOST}:8750", follow_redirects=False)


@pytest.mark.parametrize("host", [HOST, "::1", "localhost", "127.9.9.9"])
def test_loopback_is_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "console.example"])
def test_other_addresses_are_not(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("header", ["127.0.0.1:8750", "localhost:8750", "[::1]:8750", "LOCALHOST"])
def test_a_loopback_server_answers_by_its_own_names(header: str) -> None:
    assert host_allowed(header, own_names(HOST), True)


@pytest.mark.parametrize(
    "header", ["evil.example", "evil.example:8750", "127.0.0.1.evil.example", "10.0.0.1", "", ":"]
)
def test_it_refuses_every_other_name(header: str) -> None:
    assert not host_allowed(header, own_names(HOST), True)
    answer = client_of(HOST, None).get("/now", headers={"host": header})
    assert answer.status_code == 421
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def test_a_server_for_others_answers_by_addresses_and_its_name() -> None:
    names = own_names("console.example")
    assert host_allowed("10.0.0.1:80", names, False)
    assert host_allowed("console.example:80", names, False)
    assert not host_allowed("evil.example", names, False)


@pytest.mark.parametrize(
    "path", ["/now", "/now.json", "/records", "/live/now", "/static/console.js", "/"]
)
def test_without_the_token_nothing_is_shown(path: str) -> None:
    client = client_of("0.0.0.0", TOKEN)
    for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": f"{COOKIE}=wrong"}):
        answer = client.get(path, headers=headers)
        assert answer.status_code == 401
        assert TOKEN not in answer.text
    assert client.get(path, params={"token": "wrong"}).status_code == 401


def test_a_program_gives_the_token_in_a_header() -> None:
    answer = client_of("0.0.0.0", TOKEN).get("/now", headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200


def test_a_browser_gets_a_cookie_and_an_address_without_the_token() -> None:
    client = client_of("0.0.0.0", TOKEN)
    first = client.get("/now", params={"token": TOKEN, "at": "control:0"})
    assert (first.status_code, first.headers["location"]) == (303, "/now?at=control%3A0")
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    assert client.get("/now").status_code == 200


def test_the_way_back_never_leaves_the_host() -> None:
    client = client_of("0.0.0.0", TOKEN)
    answer = client.get(f"http://{HOST}:8750//evil.example/", params={"token": TOKEN})
    assert answer.headers["location"] == "/evil.example/"
