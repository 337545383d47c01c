"""Publication of weights: a directory that any engine can load, and the records that name it.

Each version is a complete Hugging Face directory with configuration and tokenizer, or only an
adapter. An adapter's manifest names the initial model and its content. The tokenizer that
`PolicyWeights` names has its own directory and never changes. When a trainer starts, the current
weights are version 0 in a new run, else the newest version. Called by the steps, at start, and by
evaluations without a trainer (`seamlessflow/runs/chosen_weights.py`).
"""

import logging
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.device_model.model_shape import context_limit
from seamlessflow.infra.disk import link_or_copy, whole_directory
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.rendering.model_template.discovery import named_for
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererSettings, rendering_hash
from seamlessflow.infra.weights.adapter import BaseModel
from seamlessflow.infra.weights.from_trainer.questions import TOKENIZER
from seamlessflow.infra.weights.manifest import (
    Manifest,
    NewVersion,
    WeightsInvalid,
    publish,
    read_manifest,
    verify,
)
from seamlessflow.infra.weights.model_hub import HubModel
from seamlessflow.infra.weights.remote.sending import weights_sender
from seamlessflow.infra.weights.tensors import tensors_hash
from seamlessflow.infra.weights.versions import (
    PublishedWeights,
    is_past,
    keep,
    lease,
    retain,
    versions,
)
from seamlessflow.schemas.records import LineageStarted, PolicyWeights, Sampling, WeightsPublished
from seamlessflow.schemas.topics import CONTROL, FLEET, fleet_key
from seamlessflow.trainer.backends.backend import Backend, ModelUnusable
from seamlessflow.trainer.recovery.control_state import ControlState
from seamlessflow.trainer.recovery.resume import ORIGIN, Resume, other_model
from seamlessflow.trainer.settings import TrainerSettings

_log = logging.getLogger(__name__)
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx")
_INDEX = ".index.json"


class WeightsDirectoryInUse(SeamlessFlowError):
    """A new run whose weights directory, or storage, holds another run's versions."""

    lasting = True

    def __init__(self, directory: str, setting: str = "trainer.weights_dir (or data_dir)") -> None:
        self.directory = directory
        super().__init__(
            f"{directory} holds weights of another run: set {setting} to another directory"
        )


class Publication:
    """One policy's versions in the weights directory."""

    def __init__(self, settings: TrainerSettings) -> None:
        self._settings = settings
        self._root = settings.weights_dir.resolve()
        self._tokenizer = self._root / TOKENIZER
        kept = settings.trainer.versions_kept
        self._sender = weights_sender(settings.weights, settings.run.policy, kept)
        self._behind = ThreadPoolExecutor(1, "weights sent")
        self._under_way: Future[None] | None = None
        self._made: NewVersion | None = None
        shown = (past for past in settings.run.frozen.values() if past is not None)
        self._past = [past.every for past in shown if past.policy == settings.run.policy]
        self.step_before: int | None = None
        """Optimizer steps that made the version written last; None: there is none."""

    @cached_property
    def _renderer(self) -> RendererSettings:
        """The renderer's settings, chosen for the model if the configuration names none."""
        return named_for(self._rendered, self._settings.policy.renderer)

    @property
    def _rendered(self) -> Path:
        """Directory of the tokenizer that prompts are rendered with."""
        return self._tokenizer if self._tokenizer.is_dir() else self._settings.policy.model

    @cached_property
    def _base(self) -> BaseModel | None:
        """The model that published adapters belong to; None if whole models are published."""
        trainer = self._settings.trainer
        computed = trainer.adapter.used and trainer.backend != "clock"
        return BaseModel.from_directory(self._settings.policy.model) if computed else None

    @property
    def tokenizer_hash(self) -> str:
        """Hash over the tokenizer and all else that decides a prompt's tokens."""
        return rendering_hash(self._rendered, self._renderer)

    def check_rendering(self) -> None:
        """Raise `RendererError` if the policy's prompts cannot be rendered."""
        Renderer.load(self._rendered, self._renderer)

    def prepare(self) -> None:
        """Copy all of the initial model's files except weights, once.

        Raise `ModelUnusable`, also if the run would go on with a model that has other tokens.
        """
        model = self._settings.policy.model
        self.check_model()
        if self._tokenizer.is_dir():
            return
        if not (model / "tokenizer.json").is_file():
            raise ModelUnusable(str(model), "has no tokenizer.json")
        with whole_directory(self._tokenizer) as draft:
            for path in companions(model):
                shutil.copyfile(path, draft / path.name)
            if (origin := HubModel.of_snapshot(model)) is not None:
                (draft / ORIGIN).write_text(str(origin), encoding="utf-8")

    def check_model(self) -> None:
        """Raise `ModelUnusable` for a model with which the run cannot go on."""
        if reason := other_model(self._settings.policy.model, self._root):
            raise ModelUnusable(str(self._settings.policy.model), reason)

    def write(self, backend: Backend, version: int, step: int, lineage: str) -> PublishedWeights:
        """Write the back end's weights, made by `step` optimizer steps, as `version`.

        Versions older than `trainer.versions_kept` allows are deleted. Raises `settle`'s errors.
        """
        self.settle()
        base = self._base
        facts = self.facts(version, step, lineage, backend.dtype, base)

        def fill(draft: Path) -> None:
            backend.write_weights(draft)
            if base is not None:
                return
            # Engines load a version like any model directory, so each needs the tokenizer's files.
            for path in companions(self._tokenizer):
                if not (draft / path.name).exists():
                    link_or_copy(path, draft / path.name)

        self._made = publish(self._root, facts, fill)
        written = self._made.weights
        if any(is_past(step, self.step_before, every) for every in self._past):
            keep(written.path)
        self.step_before = step
        # Before the copy is made: `retain` would take its drafts for a failed publication's.
        retain(self._root, self._settings.trainer.versions_kept)
        self.send(written)
        return written

    def facts(
        self, version: int, step: int, lineage: str, dtype: str, base: BaseModel | None
    ) -> Manifest:
        """Return a version's manifest without its files; `base`: an adapter's base model."""
        return Manifest(
            policy=self._settings.run.policy,
            version=version,
            optimizer_step=step,
            lineage=lineage,
            dtype=dtype,
            kind="adapter" if base else "full",
            base_model=base.directory if base else None,
            base_hash=base.hash if base else None,
            hash="blake3",
        )

    def send(self, weights: PublishedWeights) -> None:
        """Send a version, and the tokenizer, to the storage that other hosts read, if there is one.

        Nothing is sent twice. With `weights.durable` `behind` this only begins to send; one version
        at a time is under way. Raises `StorageUnavailable`.
        """
        sender = self._sender
        if sender is None:
            return

        def send() -> None:
            with lease(weights.path):
                sender.send_tokenizer(self._tokenizer, self.tokenizer_hash)
                sender.send(weights.path)

        self.settle()
        self._under_way = self._behind.submit(send)
        if self._settings.weights.durable == "before":
            self.settle()

    def sent_before(self) -> str:
        """Return the storage's URL if it has this policy's versions after the initial one.

        Else return an empty text. Raises `StorageUnavailable`.
        """
        sender = self._sender
        return sender.url if sender is not None and sender.newest() > 0 else ""

    def settle(self) -> None:
        """Wait for the version that is being sent. Raises its `StorageUnavailable`."""
        if self._under_way is not None:
            sent = self._under_way
            self._under_way = None
            sent.result()

    def announcement(
        self, published: PublishedWeights, lineage: str, now_ms: int
    ) -> WeightsPublished:
        """Return the record for `control` that announces published weights."""
        return WeightsPublished(
            at_ms=now_ms,
            policy=self._settings.run.policy,
            lineage=lineage,
            tensors_hash=self._tensors_hash(published),
            kind=read_manifest(published.path).kind,
            **asdict(published),
        )

    def policy_weights(self, published: PublishedWeights, now_ms: int) -> PolicyWeights:
        """Return the record for `fleet` that names published weights, for rollout processes to
        load.
        """
        policy = self._settings.policy
        return PolicyWeights(
            policy=self._settings.run.policy,
            **asdict(published),
            tokenizer_directory=str(self._tokenizer),
            tokenizer_hash=rendering_hash(self._tokenizer, self._renderer),
            renderer=self._renderer.to_json(),
            # A turn that fills the model's own limit has also ended by the context.
            max_context=context_limit(self._tokenizer, policy.max_context),
            overrides=self._overrides(),
            train_inexact=policy.train_inexact,
            train_undelivered=policy.train_undelivered,
            siblings=policy.siblings,
            train_truncated=policy.train_truncated,
            strictness=policy.strictness,
            at_ms=now_ms,
            frozen=self._settings.run.policy in self._settings.run.frozen,
        )

    def _tensors_hash(self, published: PublishedWeights) -> str:
        made = self._made
        if made is not None and made.weights == published:
            return made.tensors_hash
        return tensors_hash(published.path)

    def _overrides(self) -> Sampling:
        """Return the sampling parameters for all sessions, which give the trained distribution."""
        policy = self._settings.policy
        return Sampling(
            max_tokens=policy.max_tokens,
            temperature=policy.temperature,
            top_p=policy.top_p,
            top_k=policy.top_k,
            min_p=0.0,
            presence_penalty=0.0,
            frequency_penalty=0.0,
            repetition_penalty=1.0,
            min_tokens=0,
        )


def companions(directory: Path) -> list[Path]:
    """Return the files in a model's directory that are not weights."""
    return [
        path
        for path in sorted(directory.iterdir())
        if path.is_file()
        and not path.name.startswith(".")
        and path.suffix not in _WEIGHTS
        and not path.name.endswith(_INDEX)
    ]


@dataclass(frozen=True, slots=True)
class FirstWeights:
    """The weights that are current when the process begins."""

    published: PublishedWeights
    new: bool
    """True if they must still be announced on `control`."""
    resume: Resume


def first_weights(
    publication: Publication,
    root: Path,
    control_state: ControlState,
    resume: Resume,
    backend: Backend,
) -> FirstWeights:
    """Return the weights to roll out with; write them if they are missing.

    A new run writes version 0. A resumed run keeps the current version. If its directory is gone,
    or not as published, it writes the weights in memory under a new number. Raise
    `WeightsDirectoryInUse`, and `ManifestUnknown` for a version that a newer release wrote.
    """
    current = control_state.published
    origin = resume.origin
    if current is None and max(versions(root), default=0) > 0:
        raise WeightsDirectoryInUse(str(root))
    if current is None and (url := publication.sent_before()):
        raise WeightsDirectoryInUse(url, "weights.url")
    publication.prepare()
    publication.step_before = None if current is None else origin.step
    if current is not None and _is_whole(current):
        publication.send(current)
        return FirstWeights(current, False, resume)
    number = 0 if current is None else resume.next_version
    published = publication.write(backend, number, origin.step, resume.lineage)
    control_state.steps_of[number] = origin.step
    return FirstWeights(published, True, replace(resume, next_version=number + 1))


def _is_whole(weights: PublishedWeights) -> bool:
    """Return whether all files are as published; this host's workers do not read them again."""
    try:
        verify(weights.path, weights.manifest_sha256)
    except WeightsInvalid as error:
        if error.lasting:
            raise
        _log.warning("version %d gets a new number: %s", weights.version, error)
        return False
    return True


def announce(
    first: FirstWeights,
    publication: Publication,
    producer: Producer,
    at_ms: int,
    lineage: LineageStarted,
    stopping: Stopping,
) -> None:
    """Announce the lineage, then the weights: on `fleet`, and on `control` if they are new.

    Waits for Kafka.
    """
    producer.send(CONTROL.name, lineage)
    if first.new:
        name = first.resume.lineage
        producer.send(CONTROL.name, publication.announcement(first.published, name, at_ms))
    weights = publication.policy_weights(first.published, at_ms)
    producer.send(FLEET.name, weights, key=fleet_key(weights))
    producer.settle(stopping)
