"""Calls of a gang and replies to them: the same on both sides, and never a pickle."""

import io
import math
from pathlib import Path

import numpy as np
import pytest

from seamlessflow.trainer.backends.backend import Machine
from seamlessflow.trainer.backends.calls import (
    GangCall,
    GangCallName,
    GangMessage,
    Hello,
    Reply,
    encoded,
    received,
)

HELLO = Hello(token="t", worker="w", machine=Machine("cpu", 1, "2"), dtype="float32", layout="auto")


@pytest.mark.parametrize(
    "message",
    [
        HELLO,
        GangCall(name=GangCallName.LOAD, number=3, path="/there", version=7),
        Reply(number=3, metrics={"loss": 0.5}, remembered=(6, 7)),
    ],
)
def test_a_message_comes_as_it_was_sent(message: GangMessage) -> None:
    ids = np.arange(6, dtype=np.int32)
    stream = io.BytesIO(encoded(message, {"ids": ids}) + encoded(HELLO, {}))

    decoded, arrays = received(stream.read)

    assert decoded == message
    assert arrays["ids"].tolist() == ids.tolist()
    assert received(stream.read)[0] == HELLO


def test_a_metric_may_be_no_number() -> None:
    stream = io.BytesIO(encoded(Reply(number=0, metrics={"grad_norm": math.nan}), {}))

    reply, _ = received(stream.read)

    assert isinstance(reply, Reply) and math.isnan(reply.metrics["grad_norm"])


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\2" + b"\0" * 8 + b"[]"])
def test_bytes_of_another_program_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        received(io.BytesIO(data).read)


def test_a_call_without_a_path_has_no_directory() -> None:
    assert GangCall(name=GangCallName.LOAD).directory is None
    assert GangCall(name=GangCallName.LOAD, path="/there").directory == Path("/there")


def test_a_token_is_not_shown() -> None:
    assert "t'" not in repr(HELLO)
