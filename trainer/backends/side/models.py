"""The models beside the policy that a step needs: reference, teacher, critic, earlier policies.

Each rank has all of them, as it has the policy: whole, or its shards. Called by the back ends.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import PreTrainedModel

from seamlessflow.trainer.backends.backend import ModelUnusable
from seamlessflow.trainer.backends.forward import (
    Forward,
    cannot_mask,
    check_layout,
    use_attention,
)
from seamlessflow.trainer.backends.optimizer_state import Keeping
from seamlessflow.trainer.backends.sharded.parts import FileParts
from seamlessflow.trainer.backends.side.critic import Autocast, Critic, ValueHead
from seamlessflow.trainer.backends.side.frozen import (
    FrozenModel,
    Opponents,
    Placed,
    RenewedReference,
)
from seamlessflow.trainer.data.chains import LIKELIEST, OF_POLICY, AnnotatedColumns, Column
from seamlessflow.trainer.data.packing import MicroBatch
from seamlessflow.trainer.settings import TrainerSection


class SideModels:
    """The models that the settings ask for."""

    def __init__(
        self,
        policy: Path,
        settings: TrainerSection,
        placed: Placed,
        keeping: Keeping,
        forward: Forward,
        trained: Mapping[str, Tensor],
    ) -> None:
        """Load them on the host. Raise `ModelUnusable`.

        `policy` is the directory with the policy's model, `forward` its pass, `trained` its
        weights. `placed` and `keeping` come from the back end.
        """

        self.unmasked = False
        """True if a model cannot follow a mask over token pairs."""

        def checked(model: PreTrainedModel) -> PreTrainedModel:
            check_layout(use_attention(model, settings), settings.layout)
            self.unmasked |= bool(cannot_mask(model))
            return placed(model)

        self._frozen: dict[Column, FrozenModel] = {}
        self._renewed: RenewedReference | None = None
        empty = settings.by_parts
        every = settings.reference_every
        if settings.reference_used:
            directory = settings.reference or policy
            _check_tokens(policy, directory)
            reference = FrozenModel(directory, settings.compute, checked, empty, bool(every))
            self._frozen[Column.REFERENCE] = reference
            if every:
                self._renewed = RenewedReference(reference, every, keeping, trained)
        if settings.advantage == "distill" and settings.teacher is not None:
            _check_tokens(policy, settings.teacher)
            teacher = FrozenModel(settings.teacher, settings.compute, checked, empty)
            self._frozen[Column.TEACHER] = teacher
        self._opponents = _opponents(policy, settings, checked, keeping)
        self._forward = forward
        self.critic: Critic | None = None
        self.head: ValueHead | None = None
        if settings.critic_used and settings.critic.kind == "head":
            self.head = ValueHead(forward.width, settings)
        elif settings.critic_used:
            directory = settings.critic.model or policy
            _check_tokens(policy, directory)
            self.critic = Critic(directory, settings, checked, keeping)

    def annotate(
        self,
        batches: Sequence[MicroBatch],
        columns: Sequence[Column],
        device: torch.device,
        autocast: Autocast,
    ) -> AnnotatedColumns:
        """Return each micro-batch's columns; one pass gives all columns from the policy itself."""
        of_policy = OF_POLICY if self.head is None else (*OF_POLICY, *self.head.columns)
        annotated = self._of_policy(
            batches, [name for name in columns if name in of_policy], autocast
        )
        earlier = {} if self._opponents is None else self._opponents.models()
        frozen = {**self._frozen, **earlier}
        if self.critic is not None and set(self.critic.columns) & set(columns):
            annotated |= self.critic.values(batches, autocast)
        for name in columns:
            if name not in annotated:
                annotated[name] = frozen[name].logprobs(batches, device, autocast)
        return annotated

    def move(self, move: Callable[[nn.Module, Optimizer], None]) -> None:
        """Move the trained models, each with its optimizer."""
        if (trained := self.head or self.critic) is not None:
            trained.move(move)

    def step_over(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Note the end of a step, which made these policy weights as `version`."""
        if self._renewed is not None:
            self._renewed.step_over(weights)
        if self._opponents is not None:
            self._opponents.step_over(version, weights)

    def state(self) -> FileParts:
        """Return a host copy of this rank's part of all changing models."""
        return {
            name: content for model in self._changing() for name, content in model.state().items()
        }

    def load(self, directory: Path) -> None:
        """Go on from a checkpoint. Raise `ModelUnusable`."""
        for model in self._changing():
            model.load(directory)

    def _changing(self) -> Iterator[Critic | ValueHead | RenewedReference | Opponents]:
        """Yield the models that a checkpoint has besides the policy."""
        yield from (
            model
            for model in (self.head or self.critic, self._renewed, self._opponents)
            if model is not None
        )

    @torch.no_grad()
    def _of_policy(
        self, batches: Sequence[MicroBatch], columns: Sequence[Column], autocast: Autocast
    ) -> dict[Column, list[NDArray[np.float32]]]:
        """Return columns from the policy's own pass, with N numbers for each micro-batch."""
        annotated: dict[Column, list[NDArray[np.float32]]] = {name: [] for name in columns}
        with autocast():
            for batch in batches if columns else ():
                for name, column_N in self._passed(batch, columns).items():
                    annotated[name].append(column_N.cpu().numpy())
        return annotated

    def _passed(self, batch: MicroBatch, columns: Sequence[Column]) -> dict[Column, Tensor]:
        """Return a micro-batch's columns (N) from one pass, without logits if only values count."""
        results: dict[Column, Tensor] = {}
        behind = self.head is not None and self.head.behind
        if not set(OF_POLICY) & set(columns):
            hidden = self._forward.hidden(batch, behind)
        else:
            likeliest = LIKELIEST if Column.TOP_SHARE in columns else 0
            scored, hidden = self._forward.with_hidden(batch, likeliest=likeliest, behind=behind)
            results = dict(zip(OF_POLICY, scored, strict=False))
        if self.head is not None:
            results |= self.head.values(hidden)
        return {name: results[name] for name in columns}


def _opponents(
    policy: Path, settings: TrainerSection, placed: Placed, keeping: Keeping
) -> Opponents | None:
    """Return the earlier policies that the settings ask for, or None if they ask for none."""
    models = [
        FrozenModel(policy, settings.compute, placed, settings.by_parts, renewed=True)
        for _ in range(settings.opponents)
    ]
    return Opponents(models, settings.pairs.opponents.every, keeping) if models else None


def _check_tokens(policy: Path, directory: Path) -> None:
    """Raise `ModelUnusable` if a model's ids mean other tokens than the policy's."""
    files = [place / "tokenizer.json" for place in (policy, directory)]
    expected, other = (path.read_bytes() if path.is_file() else b"" for path in files)
    if expected != other:
        raise ModelUnusable(str(directory), "its tokenizer.json is not that of the policy")
