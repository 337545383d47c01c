"""Give the tokens of a call rows of their own in the embedding of a model that never wrote them.

    python tool_rows.py MODEL OUT

Tokens that no training used have almost the same row: in Qwen2.5-Coder-0.5B 3,000 others have that
of `<tool_call>`. The output layer has the same rows, so all of them get the same logit, and no
adapter of other layers can tell them apart. Here each gets the row of the fence that the model
writes in its place, with a part of a word, so that a warm-up can learn it in a few steps.
"""

import shutil
import sys
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoTokenizer

EMBEDDING = "model.embed_tokens.weight"
LIKE = {"<tool_call>": ("```", " tool"), "</tool_call>": ("```", " end")}
"""For each token the text whose row it gets, and the word that is mixed in."""
PART = 0.3
"""Part of the word in the row."""


def write_model(model: Path, out: Path) -> None:
    """Write a copy of a model with these rows. Its embedding is its output layer, too."""
    shutil.copytree(model, out)
    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    with safe_open(model / "model.safetensors", "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    rows = tensors[EMBEDDING]
    for token, texts in LIKE.items():
        fence, word = (rows[tokenizer.encode(text)].mean(0) for text in texts)
        rows[tokenizer.convert_tokens_to_ids(token)] = (1 - PART) * fence + PART * word
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    write_model(Path(sys.argv[1]), Path(sys.argv[2]))
