from collections.abc import Sequence
from dataclasses import fields
from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.show.log import concerns
from seamlessflow.recorded.show.record_view import records_view, shown_fields
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import TOPICS


def ids(*tokens: int) -> bytes:
    return np.array(tokens, "<i4").tobytes()


def letters(tokens: Sequence[int]) -> str:
    return "".join(chr(ord("a") + token) for token in tokens)


PROGRESS = r.TurnProgressed(
    session_id="g.0.0",
    turn_id="t",
    dispatch=1,
    worker="w0",
    incarnation="i",
    token_offset=0,
    token_ids=ids(7, 8, 9),
    logprobs=np.array([-0.5, -1.5, -1.0], "<f4").tobytes(),
    spans=(r.VersionSpan(start=0, version_min=4, version_max=4),),
    at_ms=5,
    delta=b'{"content":"x"}',
)
TASK = r.Task(policy="p", group_id="g", sample=0, payload=b"{}", issued_at_ms=1, deadline_ms=2)


def test_fields_of_bytes_are_shown_as_what_they_hold() -> None:
    shown = dict(shown_fields(PROGRESS, letters))
    assert shown["token_ids"] == "3 tokens: 'hij'"
    assert shown["logprobs"] == "3 log-probs, mean -1.000"
    assert shown["delta"] == '{"content":"x"}'
    assert shown["spans"].startswith("start 0, version_min 4, version_max 4")


def test_without_a_tokenizer_ids_stand_for_tokens() -> None:
    assert dict(shown_fields(PROGRESS, None))["token_ids"] == "3 tokens: 7 8 9"


def test_empty_fields_are_left_out_and_zero_is_not_empty() -> None:
    shown = dict(shown_fields(PROGRESS, None))
    assert "tensors" not in shown
    assert shown["token_offset"] == "0"


def test_long_values_are_cut_with_their_length() -> None:
    long = r.Task(policy="p", payload=b"y" * 500, issued_at_ms=1, deadline_ms=2)
    assert dict(shown_fields(long, None))["payload"] == "y" * 160 + "... (500 characters)"


def test_a_record_is_headed_by_its_kind_and_place() -> None:
    item = Received("sessions", 3, 17, 1_000, "g.0.0", (), PROGRESS)
    console = Console(width=160, file=StringIO())
    with console.capture() as captured:
        console.print(records_view([item], None))
    assert captured.get().startswith("TurnProgressed  sessions 3:17  key g.0.0  00:00:01.000")


@pytest.mark.parametrize("record", [PROGRESS, TASK])
def test_records_are_found_by_session_even_a_task_that_names_none(record: Any) -> None:
    assert concerns(record, "g.0.0")
    assert not concerns(record, "g.0.1")


def test_a_command_may_use_the_name_of_a_session() -> None:
    command = r.CloseSession(command_id="c", session_id="name", issued_at_ms=1, expires_at_ms=2)
    assert concerns(command, "name~c")
    assert not concerns(command, "other~c")


@pytest.mark.parametrize(
    "kind",
    [kind for topic in TOPICS.values() for kind in topic.records],
    ids=lambda kind: kind.__name__,
)
def test_every_field_of_bytes_has_a_name_that_says_how_to_read_it(kind: type[Any]) -> None:
    text = {"delta", "message", "messages", "new_messages", "tools", "template_args", "payload"}
    text |= {
        "matching",
        "metadata",
        "renderer",
        "settings",
        "state",
        "control_state",
        "data",
        "trajectory",
        "loss_mask",
        "tokens",
        "logprobs",
    }
    ends = ("_ids", "_hash", "_key", "calls")
    unknown = [
        field.name
        for field in fields(kind)
        if "bytes" in str(field.type) and field.name not in text and not field.name.endswith(ends)
    ]
    assert unknown == []
