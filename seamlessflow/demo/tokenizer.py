"""The demo's tokenizer: a byte-level BPE trained on rendered dialogues, with Qwen3's chat tokens.

`AutoTokenizer.from_pretrained` reads the directory that it writes, with the chat template. The
dialogues come from the real renderer, so that its long constant texts (the tool block) become a few
tokens. A digit is always a separate token, the same in a prompt and in an answer.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as RustTokenizer

from seamlessflow.demo.configuration import RENDERER
from seamlessflow.demo.task import LOOKUP, dialogue, make_tasks
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.tokenizer import Tokenizer

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKUP_TOKENS = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)

BEHIND_USER = r"(?<=user)\n"
"""The line break behind a role, which must be a separate token.

The renderer encodes a tool message's `user` by itself. A whole template's text must give the same
ids.
"""

MAX_VOCABULARY = 1024
"""Enough to make every constant text in the dialogues one token; training ends below it."""

DIALOGUES = 200
"""Dialogues to train on. They only differ in digits, so that more would change nothing."""


def make_tokenizer(directory: Path) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and the chat template, always the same."""
    directory.mkdir(parents=True, exist_ok=True)
    _trained().save(str(directory / "tokenizer.json"))
    template = Path(__file__).with_name("chat_template.jinja")
    (directory / template.name).write_bytes(template.read_bytes())
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": CONTROL_TOKENS[2],
        "pad_token": CONTROL_TOKENS[0],
        "clean_up_tokenization_spaces": False,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def _trained() -> RustTokenizer:
    tokenizer = _untrained({})
    trainer = trainers.BpeTrainer(
        vocab_size=MAX_VOCABULARY - len(CONTROL_TOKENS) - len(MARKUP_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    _add_tokens(tokenizer)
    return tokenizer


def _texts() -> Iterator[str]:
    """Yield the texts between chat tokens in rendered dialogues."""
    # The renderer needs a tokenizer to render with: one of single bytes is enough.
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_only = _untrained({letter: number for number, letter in enumerate(letters)})
    _add_tokens(bytes_only)
    renderer = Renderer(Tokenizer(bytes_only), RENDERER, "")
    chat_token = re.compile("|".join(map(re.escape, CONTROL_TOKENS + MARKUP_TOKENS)))
    for task in make_tasks(DIALOGUES, 0, "train"):
        prompt = renderer.decode(renderer.render(dialogue(task), [LOOKUP]))
        yield from filter(None, chat_token.split(prompt))


def _untrained(vocabulary: dict[str, int]) -> RustTokenizer:
    tokenizer = RustTokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Split(Regex(BEHIND_USER), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _add_tokens(tokenizer: RustTokenizer) -> None:
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS]
    )
    tokenizer.add_tokens(
        [AddedToken(token, special=False, normalized=False) for token in MARKUP_TOKENS]
    )
