"""Check that a run can go on with a model: its tokens must be those that the run began with. Pure.

It needs no log, so `train` and the trainer make it before they read one, which may take long.
"""

from pathlib import Path

from seamlessflow.infra.weights.from_trainer.questions import TOKENIZER

_FILE = "tokenizer.json"


def other_tokens(model: Path, weights_dir: Path) -> str:
    """Return why a run with this directory of weights cannot go on with a model; empty if it can.

    Also empty for a run that has not begun, and for a model that is not there any more.
    """
    named, recorded = model / _FILE, weights_dir / TOKENIZER / _FILE
    if not (named.is_file() and recorded.is_file()) or named.read_bytes() == recorded.read_bytes():
        return ""
    text = f"its {_FILE} is not that of this run, {recorded}, whose tokens would mean others"
    return f"{text}: name the model that the run began with, or begin another run (out)"
