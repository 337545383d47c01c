from urllib.parse import urlsplit

import httpx
import pytest

from seamlessflow.producers.agents.harness.proxies import exempted

PROXY = {"http_proxy": "http://proxy:3128", "ALL_PROXY": "http://proxy:3128"}


def test_the_host_of_the_gateway_is_exempted_under_both_names() -> None:
    both = exempted(PROXY, "http://10.0.0.1:8800/v1")
    assert both == {"no_proxy": "10.0.0.1", "NO_PROXY": "10.0.0.1"}


def test_what_is_exempted_already_stays_so() -> None:
    both = exempted({"NO_PROXY": "localhost, .corp"}, "http://gateway:8800/v1")
    assert both == {name: "localhost,.corp,gateway" for name in ("no_proxy", "NO_PROXY")}
    differ = exempted({"NO_PROXY": "a", "no_proxy": "b"}, "http://gateway:8800/v1")
    assert differ == {"NO_PROXY": "a,gateway", "no_proxy": "b,gateway"}


@pytest.mark.parametrize("hosts", ["*", "localhost,gateway"])
def test_a_host_that_is_exempted_is_not_added_again(hosts: str) -> None:
    assert set(exempted({"no_proxy": hosts}, "http://gateway/v1").values()) == {hosts}


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8800", "http://localhost:8800", "http://[::1]:8800", "https://g.corp"]
)
def test_a_client_calls_the_gateway_itself(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**PROXY, **exempted(PROXY, url)}.items():
        monkeypatch.setenv(name, value)
    with httpx.Client() as client:
        assert client._transport_for_url(httpx.URL(url)) is client._transport
        assert client._transport_for_url(httpx.URL("http://elsewhere")) is not client._transport
    assert urlsplit(url).hostname
