"""Completions of a model: texts of all kinds, and tokens that no tokenizer gives for them."""

from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.schemas.tokens import unpack
from tests.properties.choices import Choices
from tests.properties.simulation.engine import Author, Generation

_CALL = '<tool_call>\n{"name": "lookup", "arguments": {"key": 7}}\n</tool_call>'
_TEXTS = (
    "code 3",
    "code 3",
    "ok",
    "",
    "<think>\nhm\n</think>\n\ncode 3",
    "<think>\nhm\n</think>\n\n" + _CALL,
    _CALL,
    _CALL,
    _CALL + "\n" + _CALL,
    "text first " + _CALL,
    '<tool_call>\n{"name": </tool_call>',
    "<think>\nnever closed",
    "<tool_call>\nnever closed",
    "<think>\n\n</think>\n\nlonger than most answers are",
    "caf\u00e9 \u2603",
)


def author(renderer: Renderer, choices: Choices) -> Author:
    """Return an author of completions, most of which end with a stop token.

    A continuation may differ from the completion it continues."""
    spelt = [unpack(renderer.encode(text)) for text in _TEXTS]
    letters = [
        [token for letter in text for token in unpack(renderer.encode(letter))]
        for text in ("code 3", "ok")
    ]
    (stop, *_) = renderer.stop_token_ids

    def written(asked: Generation) -> list[int]:
        tokens = choices.pick(letters) if choices.one_in(6) else choices.pick(spelt)
        if choices.one_in(16):
            tokens = tokens + [choices.below(250) for _ in range(3)]
        whole = [*tokens, stop] if not choices.one_in(8) else tokens * 3
        return whole[len(asked.prefix) :]

    return written
