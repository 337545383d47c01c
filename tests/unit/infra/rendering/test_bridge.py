"""Tokens that a bridge reads of the turn before, and bridges to answers of others.

Bridges to other messages are tested in `test_renderer.py`.
"""

from collections.abc import Sequence

import pytest

from seamlessflow.infra.rendering.bridge import Bridge
from seamlessflow.infra.rendering.chat_template import ChatTemplate
from seamlessflow.infra.rendering.library import library_renderer
from seamlessflow.infra.rendering.settings import RendererSettings, ThinkingRetention
from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.schemas.tokens import pack
from tests.builders.messages import ASKED, TOLD, Message, called
from tests.builders.tokenizers import byte_tokenizer, make_renderer

QWEN = ("qwen3", "qwen3.5", "qwen3.6", "qwen3.8", "qwen3-vl", "prime-qwen3")
ASKED_AGAIN = {"role": "user", "content": "two"}
SAMPLES = [make_renderer().encode("an answer<|im_end|>")]


class ReadingTemplate(ChatTemplate):
    """Notes how many tokens each bridge reads."""

    def __init__(self) -> None:
        tokenizer = Tokenizer(byte_tokenizer())
        super().__init__(library_renderer(tokenizer, RendererSettings("qwen3")), "qwen3")
        self.read: list[int] = []

    def bridge(
        self,
        prompt: bytes,
        completion: bytes,
        new_messages: Sequence[Message],
        tools: Sequence[Message] | None,
    ) -> bytes | None:
        self.read.append((len(prompt) + len(completion)) // 4)
        return super().bridge(prompt, completion, new_messages, tools)


class HistoryTemplate(ReadingTemplate):
    """One whose bridge looks at the history."""

    def bridge(
        self,
        prompt: bytes,
        completion: bytes,
        new_messages: Sequence[Message],
        tools: Sequence[Message] | None,
    ) -> bytes | None:
        suffix = super().bridge(prompt, completion, new_messages, tools)
        return None if suffix is None else suffix + prompt[:4]


def test_the_work_of_a_bridge_does_not_grow_with_the_history() -> None:
    template = ReadingTemplate()
    bridge = Bridge(template, SAMPLES)
    template.read.clear()
    history = pack(template.render([ASKED], None, ask=True))
    completion = make_renderer().encode("three<|im_end|>")
    for _ in range(50):
        suffix = bridge.suffix(history, completion, [TOLD], None)
        assert suffix is not None
        history += completion + suffix
    assert len(history) > 1_000
    assert set(template.read[1:]) == {template.read[0]}


def test_a_bridge_that_needs_the_history_gets_it() -> None:
    template = HistoryTemplate()
    bridge = Bridge(template, SAMPLES)
    assert not bridge.from_tail
    prompt = pack(template.render([ASKED], None, ask=True))
    assert bridge.tail(prompt) == prompt


@pytest.mark.parametrize("family", QWEN)
@pytest.mark.parametrize("retention", [None, "all"])
@pytest.mark.parametrize("sampled", ["why\n</think>\n\nthree<|im_end|>", "why</think>thr"])
def test_an_answer_of_another_is_appended_as_the_template_writes_it(
    family: str, retention: ThinkingRetention | None, sampled: str
) -> None:
    renderer = make_renderer(family, retention)
    echoed = {"role": "assistant", "content": "three", "reasoning_content": "why"}
    said = {"role": "assistant", "content": "a summary"}
    prompt = renderer.render([ASKED])
    before = "<think>\n" if not renderer.decode(prompt).endswith("<think>\n") else ""
    completion = renderer.encode(before + sampled)
    for new in ([], [said], [called("{}"), TOLD]):
        suffix = renderer.bridge(prompt, completion, new)
        assert suffix is not None
        whole = renderer.decode(renderer.render([ASKED, echoed, *new]))
        end = "" if sampled.endswith("<|im_end|>") else "<|im_end|>"
        added = renderer.decode(suffix).removeprefix(end)
        assert added.startswith("\n<|im_start|>")
        assert whole.endswith(added)


def test_an_answer_of_another_before_a_user_forks_unless_thinking_is_retained() -> None:
    said = {"role": "assistant", "content": "a summary"}
    prompt = make_renderer().render([ASKED])
    completion = make_renderer().encode("<think>\nwhy\n</think>\n\nthree<|im_end|>")
    assert make_renderer().bridge(prompt, completion, [said, ASKED_AGAIN]) is None
    suffix = make_renderer(retention="all").bridge(prompt, completion, [said, ASKED_AGAIN])
    assert make_renderer().decode(suffix or b"") == (
        "\n<|im_start|>assistant\na summary<|im_end|>\n"
        "<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_completion_that_has_no_bridge_has_none_to_an_answer() -> None:
    renderer = make_renderer(retention="all")
    for sampled in ("<think>\nwhy<|im_end|>", "three<|im_end|>\nmore"):
        assert renderer.bridge(renderer.render([ASKED]), renderer.encode(sampled), []) is None
