"""Tokens that a bridge reads of the turn before; its result is tested in `test_renderer.py`."""

from collections.abc import Sequence

from infra.rendering.bridge import Bridge
from infra.rendering.chat_template import ChatTemplate
from infra.rendering.library import library_renderer
from infra.rendering.settings import RendererSettings
from infra.rendering.tokenizer import Tokenizer
from schemas.tokens import pack
from tests.builders.messages import ASKED, TOLD, Message
from tests.builders.tokenizers import byte_tokenizer, make_renderer

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
