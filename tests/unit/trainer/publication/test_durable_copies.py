"""Durable copies of published weights: before their announcement, or behind it."""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from pydantic import ValidationError

from seamlessflow.infra.rendering.settings import RendererSettings
from seamlessflow.infra.weights.manifest import verify
from seamlessflow.infra.weights.remote.storage import StorageUnavailable
from seamlessflow.infra.weights.settings import WeightsSection
from seamlessflow.trainer.policy import PolicySection
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.steps.publication import Publication
from tests.builders.trainer.stub_backend import StubBackend
from tests.waiting import until


class Gated(LocalFileSystem):  # type: ignore[misc]
    """Files of this machine, written only while the gate is open."""

    protocol = "gated"
    gate: ClassVar[threading.Event] = threading.Event()
    full: ClassVar[bool] = False

    def put_file(self, *arguments: Any, **options: Any) -> Any:
        assert self.gate.wait(60)
        if Gated.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().put_file(*arguments, **options)


@pytest.fixture(autouse=True)
def gate() -> Iterator[threading.Event]:
    fsspec.register_implementation("gated", Gated, clobber=True)
    yield Gated.gate
    Gated.gate.set()
    Gated.full = False


def publication(root: Path, **weights: Any) -> Publication:
    model = root / "model"
    model.mkdir()
    for name in ("tokenizer.json", "config.json"):
        (model / name).write_text("{}")
    made = Publication(
        TrainerSettings(
            data_dir=root / "trainer",
            policy=PolicySection(model=model, renderer=RendererSettings("qwen3")),
            weights=WeightsSection(**weights),
        )
    )
    made.prepare()
    return made


def anchors(root: Path) -> list[Path]:
    return sorted((root / "store").glob("policy-*/anchors/version-*"))


def test_behind_a_version_is_announced_while_its_copy_is_written(
    tmp_path: Path, gate: threading.Event
) -> None:
    gate.clear()
    url = f"gated://{tmp_path / 'store'}"
    made = publication(tmp_path, url=url, durable="behind")
    published = made.write(StubBackend(), 0, 0, "a")
    assert made.announcement(published, "a", 9).version == 0
    assert not any(path.is_file() for path in (tmp_path / "store").rglob("*"))
    gate.set()
    made.settle()
    (anchor,) = anchors(tmp_path)
    assert verify(anchor, published.manifest_sha256).version == 0


def test_behind_one_copy_at_a_time_is_under_way(tmp_path: Path, gate: threading.Event) -> None:
    gate.clear()
    made = publication(tmp_path, url=f"gated://{tmp_path / 'store'}", durable="behind")
    made.write(StubBackend(), 0, 0, "a")
    second = threading.Thread(target=lambda: made.write(StubBackend(), 1, 1, "a"))
    second.start()
    until(second.is_alive, "the second publication")
    assert not (tmp_path / "trainer/weights/version-00000001").exists()
    gate.set()
    second.join(60)
    made.settle()
    assert len(anchors(tmp_path)) == 2


def test_before_a_version_has_its_copy_when_it_is_announced(
    tmp_path: Path, gate: threading.Event
) -> None:
    gate.set()
    made = publication(tmp_path, url=(tmp_path / "store").as_uri())
    published = made.write(StubBackend(), 0, 0, "a")
    (anchor,) = anchors(tmp_path)
    assert verify(anchor, published.manifest_sha256).version == 0


def test_behind_a_copy_that_fails_ends_the_next_publication(tmp_path: Path) -> None:
    made = publication(tmp_path, url=f"gated://{tmp_path / 'store'}", durable="behind")
    Gated.full = True
    Gated.gate.set()
    made.write(StubBackend(), 0, 0, "a")
    with pytest.raises(StorageUnavailable, match="No space left on device"):
        made.write(StubBackend(), 1, 1, "a")
    assert not (tmp_path / "trainer/weights/version-00000001").exists()


def test_copies_behind_the_announcement_need_a_storage() -> None:
    with pytest.raises(ValidationError, match="durable: behind needs url"):
        WeightsSection(durable="behind")
