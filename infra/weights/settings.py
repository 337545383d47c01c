"""Settings of the way of weights from the trainer to workers, the same for both."""

from pathlib import Path

from pydantic import Field

from infra.settings import Section


class WeightsSection(Section):
    """The way of published weights to hosts that do not share the trainer's directory."""

    url: str | None = Field(
        None,
        description="URL of a storage for published weights, from which workers take them whose "
        "host does not see trainer.weights_dir, such as s3://bucket/run with the package s3fs, or "
        "file:///mnt/weights; none: all hosts share that directory",
    )
    anchor_every: int = Field(
        20,
        ge=1,
        description="Versions from one full copy (anchor) at url to the next; each version is also "
        "there as the elements that changed. More: less traffic, and more for a late joiner",
    )
    cache_dir: Path | None = Field(
        None, description="Versions that a worker took from url; none: DATA_DIR/weights-cache"
    )
