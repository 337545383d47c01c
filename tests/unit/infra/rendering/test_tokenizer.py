from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.rendering.tokenizer import Tokenizer, TokenizerError
from tests.builders.tokenizers import byte_tokenizer, fallback_tokenizer

unhurried = settings(deadline=None, max_examples=100)

BYTES = Tokenizer(byte_tokenizer())
FALLBACK = Tokenizer(fallback_tokenizer())

byte_ids = st.lists(st.integers(0, 280), max_size=40)
fallback_ids = st.lists(st.integers(1, 260), max_size=40)


@unhurried
@given(byte_ids, st.data())
def test_text_that_comes_in_pieces_is_the_text_of_the_whole(
    ids: list[int], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(ids)))
    stream = BYTES.text_stream()
    text = stream.feed(ids[:cut]) + stream.feed(ids[cut:]) + stream.flush()
    assert text == BYTES.decode(ids)


@unhurried
@given(fallback_ids, st.data())
def test_a_decoder_that_is_not_byte_level_streams_too(ids: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(ids)))
    stream = FALLBACK.text_stream()
    text = stream.feed(ids[:cut]) + stream.feed(ids[cut:]) + stream.flush()
    assert text == FALLBACK.decode(ids)


def test_half_a_character_is_held_back() -> None:
    ids = BYTES.encode("aé")
    stream = BYTES.text_stream()
    assert stream.feed(ids[:2]) == "a"
    assert stream.feed(ids[2:]) == "é"
    assert stream.flush() == ""


def test_half_a_character_at_the_end_becomes_a_mark_and_the_stream_starts_anew() -> None:
    stream = BYTES.text_stream()
    assert stream.feed(BYTES.encode("é")[:1]) == ""
    assert stream.flush() == "�"
    assert stream.feed(BYTES.encode("b")) == "b"


def test_skipped_tokens_leave_no_text() -> None:
    ids = BYTES.encode("a<|im_end|>b<think>c")
    stream = BYTES.text_stream(BYTES.special_ids)
    assert stream.feed(ids) == "ab<think>c"


def test_ids_outside_the_vocabulary_leave_no_text() -> None:
    assert BYTES.decode([10**6, *BYTES.encode("a")]) == "a"
    assert BYTES.text_stream().feed([10**6, *BYTES.encode("a")]) == "a"


@unhurried
@given(st.text())
def test_text_survives_encoding(text: str) -> None:
    assert BYTES.decode(BYTES.encode(text)) == text


def test_changing_what_was_encoded_does_not_change_the_next_answer() -> None:
    BYTES.encode("abc").clear()
    assert BYTES.decode(BYTES.encode("abc")) == "abc"


def test_truncation_and_padding_of_the_file_are_switched_off() -> None:
    inner = byte_tokenizer()
    inner.enable_truncation(2)
    inner.enable_padding(length=10)
    assert len(Tokenizer(inner).encode("abcd")) == 4


def test_a_directory_without_tokenizer_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json is missing") as unseen:
        Tokenizer.load(tmp_path)
    assert unseen.value.process_status(ready=True) is ExitStatus.PASSING


def test_a_broken_tokenizer_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError, match="no tokenizer in") as broken:
        Tokenizer.load(tmp_path)
    assert broken.value.process_status(ready=True) is ExitStatus.LASTING


@pytest.mark.parametrize("spelt", ['"<|im_end|>"', '{"content": "<|im_end|>"}'])
def test_the_end_token_comes_from_the_configuration(tmp_path: Path, spelt: str) -> None:
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(f'{{"eos_token": {spelt}}}')
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.eos_token_id == tokenizer.token_id("<|im_end|>")
