"""Tiny real tokenizers, and renderers on them."""

from collections.abc import Sequence
from functools import cache

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as RustTokenizer

from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererSettings, ThinkingRetention
from seamlessflow.infra.rendering.tokenizer import Tokenizer

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
    kept = [token for token in CONTROL_TOKENS + MARKUP_TOKENS if token != without]
    return with_tokens(
        [token for token in kept if token in CONTROL_TOKENS],
        [token for token in kept if token in MARKUP_TOKENS],
    )


def with_tokens(specials: Sequence[str], plain: Sequence[str] = ()) -> RustTokenizer:
    """Return a tokenizer with one token a byte, and further ones: special and plain."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = RustTokenizer(
        models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _with_added(tokenizer, specials, plain)


def sentencepiece_tokenizer(specials: Sequence[str], plain: Sequence[str] = ()) -> RustTokenizer:
    """Return a tokenizer like SentencePiece's: one token a letter, and tokens for other bytes."""
    letters = [chr(code) for code in range(0x21, 0x7F)]
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *letters]
    tokenizer = RustTokenizer(
        models.BPE(
            vocab={token: number for number, token in enumerate(tokens)},
            merges=[],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return _with_added(tokenizer, specials, plain)


def _with_added(
    tokenizer: RustTokenizer, specials: Sequence[str], plain: Sequence[str]
) -> RustTokenizer:
    tokenizer.add_tokens(
        [
            AddedToken(token, special=token in specials, normalized=False)
            for token in [*specials, *plain]
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


def merging_renderer(family: str, words: list[str]) -> Renderer:
    """Return a renderer whose tokenizer has a token for each of these words, and for each byte."""
    plain = byte_tokenizer()
    added = plain.get_added_tokens_decoder()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    spelling = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    vocabulary = list(letters)
    merges = []
    for word in words:
        ((spelt, _),) = spelling.pre_tokenize_str(word)
        for end in range(2, len(spelt) + 1):
            if spelt[:end] not in vocabulary:
                vocabulary.append(spelt[:end])
                merges.append((spelt[: end - 1], spelt[end - 1]))
    ids = {token: number for number, token in enumerate(vocabulary)}
    tokenizer = RustTokenizer(models.BPE(vocab=ids, merges=merges))
    tokenizer.pre_tokenizer = plain.pre_tokenizer
    tokenizer.decoder = plain.decoder
    tokenizer.add_tokens([added[number] for number in sorted(added)])
    return Renderer(Tokenizer(tokenizer), RendererSettings(family), "")
