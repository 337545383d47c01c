"""Model directories without weights: a tiny tokenizer and a family's chat template.

The templates are written here after the families' published ones, to give the same prompts.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from seamlessflow.infra.rendering.model_template.files import (
    CONFIG_FILE,
    GENERATION_FILE,
    TEMPLATE_FILE,
)
from tests.builders.tokenizers import sentencepiece_tokenizer, with_tokens

_TEMPLATES = Path(__file__).with_name("chat_templates")


@dataclass(frozen=True)
class Family:
    """Family of models, as far as its prompts are concerned."""

    template: str
    specials: tuple[str, ...]
    eos: str
    bos: str | None = None
    plain: tuple[str, ...] = ()
    """Tokens that are no special ones."""
    ends: tuple[str, ...] = ()
    """Tokens that the model's generation configuration names."""
    sentencepiece: bool = False
    """True if its tokenizer comes from SentencePiece."""


_CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_HEADERS = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>")
_MISTRAL = ("[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]")
_TURNS = ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")
_PHI = ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")

FAMILIES = {
    "Qwen2.5": Family("qwen25", _CHATML, "<|im_end|>", plain=("<tool_call>", "</tool_call>")),
    "Llama 3.x": Family(
        "llama31",
        ("<|begin_of_text|>", "<|end_of_text|>", *_HEADERS),
        "<|eot_id|>",
        "<|begin_of_text|>",
        ends=("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"),
    ),
    "Mistral": Family(
        "mistral",
        ("<s>", "</s>", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", *_MISTRAL),
        "</s>",
        "<s>",
        sentencepiece=True,
    ),
    "Gemma": Family(
        "gemma",
        _TURNS,
        "<eos>",
        "<bos>",
        ends=("<eos>", "<end_of_turn>"),
        sentencepiece=True,
    ),
    "Phi": Family("phi", _PHI, "<|endoftext|>", ends=("<|endoftext|>", "<|end|>")),
    "Phi-4": Family("phi4", (*_CHATML, "<|im_sep|>"), "<|im_end|>"),
}


def model_directory(directory: Path, family: Family, source: str | None = None) -> Path:
    """Write the files of a family's model into a directory; `source` replaces its template."""
    make = sentencepiece_tokenizer if family.sentencepiece else with_tokens
    tokenizer = make(family.specials, family.plain)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    template = source or (_TEMPLATES / f"{family.template}.jinja").read_text()
    (directory / TEMPLATE_FILE).write_text(template)
    config = {"eos_token": family.eos, "bos_token": family.bos}
    (directory / CONFIG_FILE).write_text(json.dumps(config))
    ends = [tokenizer.token_to_id(token) for token in family.ends]
    (directory / GENERATION_FILE).write_text(json.dumps({"eos_token_id": ends}))
    return directory
