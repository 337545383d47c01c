"""Give a call's tokens their own rows in the output layer, for a model that never wrote them.

    python scripts/tool_rows.py MODEL OUT

Tokens that no training used have the same row there: in Qwen2.5-Coder-0.5B, 2,451 other tokens
share the row that `<tool_call>` has. All of them always get the same logit, and no adapter in other
layers can tell them apart. Here each gets the row of the fence that the model writes instead, and
part of the row for the word "begin" or "end". So a warm-up can learn it in a few steps.
"""

import shutil
import sys
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoTokenizer

OUTPUT = "lm_head.weight"
FENCE = "```"
SCALE = 1.1
"""Above 1, so that a call's token is likelier than the fence from the start."""
PART = 0.3
"""Part that the words have in the rows, which tells both tokens apart."""


def write_model(model: Path, out: Path) -> None:
    """Write a copy of a model with these rows."""
    shutil.copytree(model, out)
    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    with safe_open(model / "model.safetensors", "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    rows = tensors[OUTPUT]
    fence, begin, end = (rows[tokenizer.encode(text)].mean(0) for text in (FENCE, " begin", " end"))
    apart = PART * (begin - end)
    rows[tokenizer.convert_tokens_to_ids("<tool_call>")] = SCALE * fence + apart
    rows[tokenizer.convert_tokens_to_ids("</tool_call>")] = SCALE * fence - apart
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    write_model(Path(sys.argv[1]), Path(sys.argv[2]))
