"""Tiny real tokenizers, and renderers on them."""

from functools import cache

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as RustTokenizer

from infra.rendering.renderer import Renderer
from infra.rendering.settings import RendererSettings, ThinkingRetention
from infra.rendering.tokenizer import Tokenizer

CONTROL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
MARKUP_TOKENS = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)


def byte_tokenizer(without: str = "") -> RustTokenizer:
    """Return a tokenizer with one token a byte, and Qwen's chat tokens except for one."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = RustTokenizer(
        models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(
        [
            AddedToken(token, special=token in CONTROL_TOKENS, normalized=False)
            for token in CONTROL_TOKENS + MARKUP_TOKENS
            if token != without
        ]
    )
    return tokenizer


def fallback_tokenizer() -> RustTokenizer:
    """Return a tokenizer like SentencePiece's: words, and tokens such as `<0x0A>` for bytes."""
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁word", "▁", "a", "é"]
    tokenizer = RustTokenizer(
        models.BPE(
            vocab={token: number for number, token in enumerate(tokens)},
            merges=[],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


@cache
def make_renderer(
    name: str = "qwen3", retention: ThinkingRetention | None = None, thinking: bool | None = None
) -> Renderer:
    options = {} if thinking is None else {"enable_thinking": thinking}
    settings = RendererSettings(name, retention, options)
    return Renderer(Tokenizer(byte_tokenizer()), settings, "")
