"""Settings for the transport of weights from the trainer to workers, the same for both."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from seamlessflow.infra.network.addresses import StorageUrl
from seamlessflow.infra.settings import Section


class WeightsSection(Section):
    """Transport of published weights to hosts that do not share the trainer's directory."""

    url: StorageUrl | None = Field(
        None,
        description="Storage URL for published weights, such as s3://bucket/run with the package "
        "s3fs, or file:///mnt/weights. Workers load from it if their host does not see "
        "trainer.weights_dir; none: all hosts share that directory, or from_trainer is set",
    )
    from_trainer: Literal["never", "unseen", "always"] = Field(
        "never",
        description="Which workers take published weights from the training hosts' memory, over "
        "the network (gloo). unseen: those that do not see trainer.weights_dir; always: all, for "
        "example with a slow shared disk. What does not arrive is taken from trainer.weights_dir "
        "or url",
    )
    durable: Literal["before", "behind"] = Field(
        "before",
        description="before: a version is at url before it is announced. behind: it is written "
        "later, beside the next step, for runs whose workers see trainer.weights_dir or use "
        "from_trainer",
    )
    anchor_every: int = Field(
        20,
        ge=1,
        description="Versions between two full copies (anchors) at url. Each version is also "
        "stored as the elements that changed. A higher number means less traffic, but more to read "
        "for a worker that joins late",
    )
    cache_dir: Path | None = Field(
        None,
        description="Where a worker keeps versions that it took from url or from the trainer; "
        "none: DATA_DIR/weights-cache. On tmpfs, such as /dev/shm/run, they stay in memory",
    )

    @model_validator(mode="after")
    def _durable_somewhere(self) -> Self:
        if self.durable == "behind" and self.url is None:
            raise ValueError("durable: behind needs url, where the durable copies are")
        return self

    def cache(self, data_dir: Path) -> Path:
        """Return the directory for versions that were taken from elsewhere."""
        return self.cache_dir or data_dir / "weights-cache"
