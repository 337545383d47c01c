"""The last line of a program's output, however it was printed, and proxies passed by."""

import io
import json
import math
from urllib.parse import urlsplit

import httpx
import pytest

from seamlessflow.producers.agents.harness.command import LONGEST_LINE_BYTES, exempted, result_in
from tests.builders.line_forms import LINE_FORMS, SEPARATORS, Written
from tests.waiting import PATIENCE_S

RESULT = {"reward": 0.25, "text": SEPARATORS}
LINE = json.dumps(RESULT, ensure_ascii=False).encode()
PROXY = {"http_proxy": "http://proxy:3128", "ALL_PROXY": "http://proxy:3128"}


def read(output: bytes) -> object:
    return result_in(io.BytesIO(output))


@pytest.mark.parametrize("written", LINE_FORMS.values(), ids=LINE_FORMS)
def test_the_last_line_is_the_result_however_it_was_written(written: Written) -> None:
    assert read(written([b"working", b"{}", LINE])) == RESULT


@pytest.mark.parametrize(
    "output",
    [
        b"\x1b[32m" + LINE + b"\x1b[0m\n",
        LINE + b"\n\x1b[0m\n",
        b"\x1b]0;a title\x07\x1b[1;31m" + LINE + b"\x1b(B\x1b[m\r\n\x1b[?25h",
        b"\x1b]8;;http://x\x1b\\" + LINE + b"\x1b]8;;\x1b\\",
        b" 10 %\r100 %\r" + LINE + b"\r\n",
        b"not UTF-8: \xff\xfe\n" + LINE,
    ],
)
def test_what_a_terminal_does_not_show_is_no_part_of_the_result(output: bytes) -> None:
    assert read(output) == RESULT


@pytest.mark.parametrize("size", [70_000, 2_000_000, LONGEST_LINE_BYTES - 100])
def test_a_long_line_is_read_whole(size: int) -> None:
    long = json.dumps({"reward": 1, "text": "x" * size}).encode()
    expected = {"reward": 1, "text": "x" * size}
    assert read(b"begin\n" + long + b"\n\n") == expected
    assert read(long) == expected


@pytest.mark.parametrize("before", [0, 4 * LONGEST_LINE_BYTES])
def test_a_line_that_is_too_long_is_named(before: int) -> None:
    long = json.dumps({"reward": 1, "text": "x" * LONGEST_LINE_BYTES}).encode()
    assert read(b"y" * before + long) == {
        "last_line": f"a line of more than {LONGEST_LINE_BYTES} bytes"
    }


def test_a_long_output_before_the_last_line_is_not_in_the_way() -> None:
    assert read(b"x" * 3_000_000 + b"\n" + LINE) == RESULT
    assert read(LINE + b"\n" + b" " * 3_000_000 + b"\n" + b"\n" * 70_000) == RESULT


def test_a_number_that_is_no_reward_is_read_and_then_refused_as_such() -> None:
    number = read(b'{"reward": NaN}\n')
    assert isinstance(number, dict)
    assert math.isnan(number["reward"])
    assert read(b"-Infinity") == -math.inf
    assert read(b'{"reward": 1' + b"0" * 400 + b"}") == {"reward": 10**400}


@pytest.mark.parametrize(
    ("output", "line"),
    [(b"", ""), (b"\n", ""), (b"[1]\n", "[1]"), (b'{\n  "reward": 1\n}\n', "}"), (b"done", "done")],
)
def test_an_output_without_a_result_is_told_by_its_last_line(output: bytes, line: str) -> None:
    assert read(output) == {"last_line": line}


@pytest.mark.parametrize("deep", [b"[" * 100_000, b"1" * 10_000])
def test_a_line_that_python_refuses_to_read_is_no_result(deep: bytes) -> None:
    assert read(deep) == {"last_line": deep.decode()}


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
    with httpx.Client(timeout=PATIENCE_S) as client:
        assert client._transport_for_url(httpx.URL(url)) is client._transport
        assert client._transport_for_url(httpx.URL("http://elsewhere")) is not client._transport
    assert urlsplit(url).hostname
