"""Sockets for signs of life below directories of any length."""

from contextlib import closing
from pathlib import Path

import pytest

from seamlessflow.infra.supervision.life_signs import LifeSigns
from seamlessflow.infra.supervision.sign_socket import SignSocket


@pytest.mark.parametrize("length", [1, 100, 107, 108, 200])
def test_a_sign_arrives_whatever_the_length_of_the_path(tmp_path: Path, length: int) -> None:
    path = tmp_path / ("d" * length) / "ü, 1"
    path.parent.mkdir()
    with closing(SignSocket(path)) as signs, closing(LifeSigns(str(path), 1)) as sender:
        assert not signs.signed()
        sender.send()
        assert signs.signed()
    assert not path.exists()


def test_a_supervisor_that_is_gone_ends_no_sender(tmp_path: Path) -> None:
    with closing(LifeSigns(str(tmp_path / ("d" * 200) / "1"), 1)) as sender:
        sender.send()
