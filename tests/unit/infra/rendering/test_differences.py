"""The difference of two renderings, on templates of a few letters."""

from collections.abc import Callable, Sequence

import pytest

from seamlessflow.infra.rendering.differences import behind_answer
from seamlessflow.infra.rendering.probes import Message

HISTORIES: list[list[Message]] = [
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
    [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d", "reasoning_content": "r"},
    ],
]
NEW: list[Message] = [{"role": "user", "content": "x|y"}]


def _plain(messages: Sequence[Message], ask: bool) -> str:
    return "".join(f"{message['content']}|" for message in messages) + ">" * ask


def _numbered(messages: Sequence[Message], ask: bool) -> str:
    return (
        "".join(f"{place}{message['content']}|" for place, message in enumerate(messages))
        + ">" * ask
    )


def _forgetful(messages: Sequence[Message], ask: bool) -> str:
    """Write the thinking of the last message only."""
    *before, last = messages
    return _plain(before, False) + f"{last.get('reasoning_content', '')}{last['content']}|>"


def _silent(messages: Sequence[Message], ask: bool) -> str:
    return "".join(f"{message['content']}|" for message in messages if message["role"] != "user")


def _unclosed(messages: Sequence[Message], ask: bool) -> str:
    return "".join(str(message["content"]) for message in messages)


def _added(render: Callable[[Sequence[Message], bool], str], *, thinking_stays: bool) -> str | None:
    def ends(text: str) -> list[int]:
        return [place for place, letter in enumerate(text, 1) if letter == "|"]

    return behind_answer(render, ends, HISTORIES, NEW, thinking_stays=thinking_stays)


@pytest.mark.parametrize("thinking_stays", [True, False])
def test_what_follows_every_history_alike_is_found(thinking_stays: bool) -> None:
    assert _added(_plain, thinking_stays=thinking_stays) == "x|y|>"


@pytest.mark.parametrize("render", [_numbered, _silent, _unclosed])
def test_a_template_without_such_a_part_has_none(
    render: Callable[[Sequence[Message], bool], str],
) -> None:
    assert _added(render, thinking_stays=True) is None


def test_a_template_that_removes_thinking_counts_only_if_thinking_is_kept() -> None:
    assert _added(_forgetful, thinking_stays=False) is None
    assert _added(_forgetful, thinking_stays=True) == "x|y|>"
