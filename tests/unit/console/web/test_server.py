"""The token of a console, and the address that it prints."""

import socket
from pathlib import Path

import pytest

from seamlessflow.console.web.server import (
    ConsoleAddressTaken,
    TokenRejected,
    address,
    listener,
    token_for,
)
from seamlessflow.infra.network.addresses import HOST


def test_this_machine_alone_needs_no_token() -> None:
    assert token_for(HOST, None) is None


def test_another_address_gets_a_new_token_at_each_start() -> None:
    first = token_for("0.0.0.0", None)
    assert first is not None
    assert len(first) >= 32
    assert first != token_for("0.0.0.0", None)


def test_a_file_has_the_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("sixteen-letters-\n")
    assert token_for(HOST, path) == "sixteen-letters-"


@pytest.mark.parametrize("content", [b"", b"short", b"\xff\xfe" * 20])
def test_a_file_that_guards_nothing_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(TokenRejected, match="--token-file"):
        token_for(HOST, path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenRejected, match="nothing"):
        token_for(HOST, tmp_path / "nothing")


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConsoleAddressTaken, match=f"port {port} \\(--host, --port\\)"):
            listener(HOST, port)


def test_who_opens_the_address_before_the_server_runs_waits_for_it() -> None:
    with listener(HOST, 0) as listening:
        socket.create_connection(listening.getsockname(), 10).close()


def test_the_address_has_the_token() -> None:
    with listener(HOST, 0) as listening:
        port = listening.getsockname()[1]
        assert address(listening, None) == f"http://{HOST}:{port}/"
        assert address(listening, "t") == f"http://{HOST}:{port}/?token=t"
