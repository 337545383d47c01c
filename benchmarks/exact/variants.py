"""A session's variants: the sampled ids, or its text encoded again as users of proxies do it.

- `exact`: ids and log-probs as sampled.
- `recomputed`: other ids, and the trainer's own log-probs for them instead of the engine's.
- `padded`: other ids, and the engine's log-probs by place, cut or filled up with zeros.
- `dropped`: a session with other ids is masked; others are as sampled.

Pure but for `recomputed`, whose log-probs come from the back end once its batch is there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from benchmarks.learning.sampler import Completion
from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.schemas.arrays import Float32s
from seamlessflow.schemas.tokens import pack
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.data.chains import Chain, Column
from seamlessflow.trainer.data.credit.phase import with_columns
from seamlessflow.trainer.data.packing import pack as packed
from seamlessflow.trainer.settings import TrainerSection

Variant = Literal["exact", "recomputed", "padded", "dropped"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)


@dataclass(frozen=True, slots=True)
class Answer:
    """A sampled answer, with what becomes of its text."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    again: tuple[int, ...]
    """Its text's ids, with its stop token if it ended with one."""

    @property
    def changed(self) -> bool:
        """Return whether its text has other ids."""
        return self.ids != self.again

    def completion(self, variant: Variant) -> Completion:
        """Return the ids and log-probs that a variant trains."""
        if variant in ("exact", "dropped"):
            return _completion(self.ids, self.logprobs)
        padding = (0.0,) * len(self.again)
        return _completion(self.again, (*self.logprobs, *padding)[: len(self.again)])

    def trained(self, variant: Variant) -> bool:
        """Return whether a variant trains it."""
        return variant != "dropped" or not self.changed


def encoded_again(ids: Sequence[int], stops: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """Return the ids of an answer's text, with its stop token behind them if it has one.

    The text has no special tokens, as a server's text. A stop token is kept, although a proxy that
    gets only text must guess it from the finish reason.
    """
    ended = bool(ids) and ids[-1] in stops
    body = list(ids[:-1] if ended else ids)
    text = tokenizer.decode(body, skip_special_tokens=True)
    return tokenizer.encode(text) + list(ids[len(body) :])


def recomputed(batch: Batch, settings: TrainerSection, backend: TorchBackend) -> Batch:
    """Return the batch with the back end's log-probs instead of its engine's."""
    micro_batches = packed(batch.chains(), settings.micro_batch_tokens, settings.layout)
    columns = backend.annotate(micro_batches, (Column.PROXIMAL,))
    scored = with_columns(batch, micro_batches, columns)
    groups = [
        replace(group, chains=tuple(_rescored(chain) for chain in group.chains))
        for group in scored.groups
    ]
    return replace(scored, groups=tuple(groups))


def _rescored(chain: Chain) -> Chain:
    logprobs_T: Float32s = chain.tokens.logprobs_T.copy()
    logprobs_T[chain.tokens.trained_T] = chain.columns[Column.PROXIMAL]
    return replace(chain, tokens=replace(chain.tokens, logprobs_T=logprobs_T), columns={})


def _completion(ids: Sequence[int], logprobs: Sequence[float]) -> Completion:
    return Completion(bytearray(pack(ids)), bytearray(np.array(logprobs, "<f4").tobytes()))
