"""Hugging Face tokenizer on only the Rust library, three times as fast as the transformers class.

It turns text into token ids, and ids into text, also while more ids are sampled.
`infra/rendering/library.py` gives it to the `renderers` library. A long text (three megabytes take
seconds) is put off: `TokensWanted` asks for another thread that tokenises it, and the caller
renders again.
"""

import codecs
import json
import re
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence, Set
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Protocol

import tokenizers

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.rendering.outside_text import MARK, removing_marks

LONG_TEXT = 256_000
"""Most letters that are tokenised where they are rendered: about a tenth of a second."""

TEXTS_KEPT = 16
"""Long texts whose ids are kept until they are rendered again."""


class TokensWanted(Exception):
    """A long text that must be tokenised before the messages can be rendered."""

    def __init__(self, text: str, tokenise: Callable[[], None]) -> None:
        self.text = text
        self.tokenise = tokenise
        """Makes the ids known to the renderer; for any thread."""
        super().__init__(f"a text of {len(text)} letters is not tokenised yet")


class LongTexts:
    """Ids of long texts, or the errors from tokenising them, by text."""

    def __init__(self, tokenise: Callable[[str], list[int]]) -> None:
        """`tokenise` lets other Python threads go on while it computes."""
        self._tokenise = tokenise
        self._known: OrderedDict[str, array[int] | Exception] = OrderedDict()

    def ids(self, text: str) -> list[int]:
        """Return a text's ids. Raises `TokensWanted`, and the error from tokenising it."""
        remembered = self._known.get(text)
        if remembered is None:
            raise TokensWanted(text, lambda: self._learn(text))
        if isinstance(remembered, Exception):
            raise remembered
        return remembered.tolist()

    def _learn(self, text: str) -> None:
        try:
            self._known[text] = array("i", self._tokenise(text))
        except Exception as error:  # raised again at rendering, by code that has a plan
            self._known[text] = error
        while len(self._known) > TEXTS_KEPT:
            self._known.popitem(last=False)


ENCODED_TEXTS_KEPT = 128
"""Most texts whose ids are cached. Templates encode the same few again and again, among them a
session's whole tool block."""

LONGEST_TEXT_KEPT = 32_768
"""Longest text, in characters, that is cached: bounds the cache's memory."""


class TokenizerError(SeamlessFlowError):
    """The directory has no tokenizer that can be loaded."""

    def __init__(self, directory: str, reason: str, lasting: bool | None = None) -> None:
        """`lasting`: True for a file that is no tokenizer, None if it could not be read."""
        self.lasting = lasting
        self.directory = directory
        self.reason = reason
        super().__init__(f"no tokenizer in {directory}: {reason}")


class TextStream(Protocol):
    """Stream that turns ids into text while they arrive.

    The text returned so far depends only on the ids fed so far, not on how they were cut.
    """

    def feed(self, ids: Iterable[int]) -> str:
        """Return the text that `ids` add, without a character whose bytes are incomplete."""

    def flush(self) -> str:
        """Return the text that is held back, as U+FFFD; the next `feed` starts anew."""


class Tokenizer:
    """Implementation of the `renderers` protocol `Tokenizer`, without offsets.

    Offsets attribute tokens to messages, and this project does not use that.
    """

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        *,
        eos_token: str | None = None,
        directory: Path | None = None,
    ) -> None:
        inner.no_truncation()
        inner.no_padding()
        self._inner = inner
        self.directory = directory
        """Directory that it was read from; the model's chat template is there too."""
        self.name_or_path = ""
        unk_token = getattr(inner.model, "unk_token", None)
        self.unk_token_id = None if unk_token is None else inner.token_to_id(unk_token)
        self.eos_token_id = None if eos_token is None else inner.token_to_id(eos_token)
        added = inner.get_added_tokens_decoder()
        self.special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self.added_tokens = {token.content: token.special for token in added.values()}
        """Added tokens, each with True if it is special."""
        self._byte_level = _is_byte_level(inner)
        self._bytes_of: dict[int, bytes] = {}
        self._remembered = lru_cache(maxsize=ENCODED_TEXTS_KEPT)(self._encode)
        self._put_off: int | None = None
        self._long_texts = LongTexts(self._encode_aside)

    @classmethod
    def load(cls, directory: Path) -> "Tokenizer":
        """Read `tokenizer.json`, and the end token from `tokenizer_config.json` if there is one.

        Raises `TokenizerError`.
        """
        file = directory / "tokenizer.json"
        if not file.is_file():
            raise TokenizerError(str(directory), "tokenizer.json is missing")
        try:
            inner = tokenizers.Tokenizer.from_str(file.read_text(encoding="utf-8"))
        except Exception as error:  # the Rust library raises bare Exception
            lasts = None if isinstance(error, OSError) else True
            raise TokenizerError(str(directory), f"tokenizer.json: {error}", lasts) from error
        eos_token = _eos_token(directory / "tokenizer_config.json")
        return cls(inner, eos_token=eos_token, directory=directory)

    def encode(self, text: str, **_: object) -> list[int]:
        """Return the ids of `text`; spelt-out special tokens become their ids, none are added.

        Spellings that `outside_text.py` marked are text. Raises `TokensWanted` for a text that is
        put off.
        """
        if len(text) <= LONGEST_TEXT_KEPT:
            return list(self._remembered(text))
        if self._put_off is not None and len(text) > self._put_off:
            return self._long_texts.ids(text)
        return list(self._encode(text))

    def put_off(self, longer_than: int) -> None:
        """Let `encode` raise `TokensWanted` for texts with more letters, until tokenised."""
        self._put_off = longer_than

    def decode(
        self, ids: int | Sequence[int], skip_special_tokens: bool = False, **_: object
    ) -> str:
        """Return the text of `ids`, with U+FFFD for invalid bytes; unknown ids are left out."""
        whole = [ids] if isinstance(ids, int) else list(ids)
        return self._inner.decode(whole, skip_special_tokens=skip_special_tokens)

    def normalized(self, text: str) -> str:
        """Return the text as the tokenizer reads it; Qwen's composes letters and accents."""
        normalizer = self._inner.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> int | list[int | None] | None:
        """Return the id of a token, or of each token; None if it is not in the vocabulary."""
        if isinstance(tokens, str):
            return self.token_id(tokens)
        return [self.token_id(token) for token in tokens]

    @property
    def vocabulary_size(self) -> int:
        """Count of tokens, added ones included: the largest id plus one, if ids have no gaps."""
        return self._inner.get_vocab_size(with_added_tokens=True)

    def token_id(self, token: str) -> int | None:
        """Return a token's id, or None if it is not in the vocabulary."""
        return self._inner.token_to_id(token)

    def text_stream(self, skip: Set[int] = frozenset()) -> TextStream:
        """Return a new stream that leaves out the ids in `skip`."""
        if self._byte_level:
            return _ByteStream(self, skip)
        return _DecodedStream(self, skip)

    def is_byte(self, token_id: int) -> bool:
        """Return whether a token is a single byte as in SentencePiece, such as `<0x0A>`."""
        token = self._inner.id_to_token(token_id)
        return token is not None and _BYTE_TOKEN.fullmatch(token) is not None

    def token_bytes(self, token_id: int) -> bytes:
        """Return a token's bytes in a byte-level tokenizer; empty for unknown ids."""
        spelt = self._bytes_of.get(token_id)
        if spelt is None:
            spelt = self._bytes_of[token_id] = _spelling(self._inner.id_to_token(token_id))
        return spelt

    @cached_property
    def _removing_marks(self) -> tokenizers.Tokenizer:
        return removing_marks(self._inner)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._for(text).encode(text, add_special_tokens=False).ids)

    def _encode_aside(self, text: str) -> list[int]:
        # A batch, since the library holds Python's lock while it encodes a single text.
        (encoded,) = self._for(text).encode_batch_fast([text], add_special_tokens=False)
        return encoded.ids

    def _for(self, text: str) -> tokenizers.Tokenizer:
        return self._removing_marks if MARK in text else self._inner


class _ByteStream:
    """A byte-level tokenizer's text stream: one dictionary lookup for each token."""

    def __init__(self, tokenizer: Tokenizer, skip: Set[int]) -> None:
        self._bytes = tokenizer.token_bytes
        self._skip = skip
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Iterable[int]) -> str:
        spelt = b"".join([self._bytes(i) for i in ids if i not in self._skip])
        return self._decoder.decode(spelt)

    def flush(self) -> str:
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest


class _DecodedStream:
    """Text stream for other tokenizers: at each step it decodes everything since the last flush.

    A run of byte tokens is held back to its end, because one invalid byte spoils the whole run.
    """

    def __init__(self, tokenizer: Tokenizer, skip: Set[int]) -> None:
        self._tokenizer = tokenizer
        self._skip = skip
        self._ids: list[int] = []
        self._returned = ""

    def feed(self, ids: Iterable[int]) -> str:
        self._ids.extend(i for i in ids if i not in self._skip)
        settled = len(self._ids)
        while settled and self._tokenizer.is_byte(self._ids[settled - 1]):
            settled -= 1
        return self._new_part(self._tokenizer.decode(self._ids[:settled]).rstrip("\ufffd"))

    def flush(self) -> str:
        rest = self._new_part(self._tokenizer.decode(self._ids))
        self._ids = []
        self._returned = ""
        return rest

    def _new_part(self, text: str) -> str:
        if len(text) <= len(self._returned):
            return ""
        new = text[len(self._returned) :]
        self._returned = text
        return new


_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")


def _eos_token(config: Path) -> str | None:
    if not config.is_file():
        return None
    token = json.loads(config.read_text(encoding="utf-8")).get("eos_token")
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _is_byte_level(inner: tokenizers.Tokenizer) -> bool:
    if inner.decoder is None:
        return False
    decoder = json.loads(inner.decoder.__getstate__())
    return [part["type"] for part in decoder.get("decoders", [decoder])] == ["ByteLevel"]


def _byte_of_character() -> dict[str, int]:
    """Return GPT-2's alphabet: printable Latin-1 is itself, the other 68 bytes follow U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + place): byte for place, byte in enumerate(others)
    }


_BYTE_OF_CHARACTER = _byte_of_character()


def _spelling(token: str | None) -> bytes:
    """Return a byte-level token's bytes.

    A token with a character outside the alphabet stands for its own text, as in the Rust decoder.
    """
    if token is None:
        return b""
    spelt = [_BYTE_OF_CHARACTER.get(character) for character in token]
    if any(byte is None for byte in spelt):
        return token.encode()
    return bytes(byte for byte in spelt if byte is not None)
