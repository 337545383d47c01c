"""A random model that samples only ordinary text, so that all answers are as long as asked."""

from pathlib import Path

import torch

from benchmarks.gpu.steps import random_model, usual_shape
from seamlessflow.demo.tokenizer import CONTROL_TOKENS, MARKUP_TOKENS, make_tokenizer
from seamlessflow.infra.rendering.tokenizer import Tokenizer

_PUSH = 4.0
"""Far above the other numbers in an embedding, few of which are beyond 0.05."""


def write_talker(directory: Path, small: bool) -> None:
    """Write a model and its tokenizer; see `random_model` for the shape.

    Every embedding's first number is large: positive for text tokens, negative for tokens that end
    a turn or mark its parts, and for tokens without a text. It remains the largest in the hidden
    state, and the same table gives the logits. So only text tokens are sampled behind a text token,
    and every prompt ends with one.
    """
    make_tokenizer(directory)
    tokenizer = Tokenizer.load(directory)
    model = random_model(usual_shape(small))
    marks = [tokenizer.token_id(token) for token in CONTROL_TOKENS + MARKUP_TOKENS]
    with torch.no_grad():
        first_V = model.model.embed_tokens.weight[:, 0]
        first_V.fill_(_PUSH)
        first_V[tokenizer.vocabulary_size :] = -_PUSH
        first_V[marks] = -_PUSH
    model.save_pretrained(directory)
