"""Records that are too large for their topic, through a real broker and a directory of blobs."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import xxhash

from seamlessflow.infra.blobs import FsspecStore, reference
from seamlessflow.infra.errors import BlobUnavailable
from seamlessflow.infra.kafka.client import BEGINNING, Received
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.unreadable import Raw, Unreadable
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, TRAJECTORIES
from tests.builders.records import control
from tests.builders.records.content import message
from tests.builders.trajectories.manager_system import ManagerSystem, manager_system

DEADLINE_S = 120.0
LARGE = control.lost(reason="x" * 2 * CONTROL.max_record_bytes)


@pytest.fixture
def stored(kafka: KafkaSettings, tmp_path: Path) -> Iterator[KafkaSettings]:
    """Yield settings with a storage, and a topic that holds a small record, a large and a small."""
    settings = kafka.model_copy(update={"blobs": (tmp_path / "blobs").as_uri()})
    create_topics(settings, [CONTROL])
    with closing(Producer(settings, "writer")) as producer:
        for record in (control.lost(), LARGE, control.lost()):
            producer.send(CONTROL.name, record, key="w0")
    yield settings


def read(settings: KafkaSettings, **options: object) -> list[Record]:
    reader, items = Reader(settings, "reader", **options), list[Received]()  # type: ignore[arg-type]
    with closing(reader):
        reader.assign({(CONTROL.name, 0): BEGINNING})
        deadline = time.monotonic() + DEADLINE_S
        while len(items) < 3:
            items += reader.poll(0.1)
            assert time.monotonic() < deadline, items
    return [item.record for item in items]


def kept_reference(settings: KafkaSettings) -> r.BlobReference:
    raw = read(settings, rules=ReadingRules(decode=Raw))[1]
    assert isinstance(raw, Raw)
    blob = reference(raw.value)
    assert blob is not None
    return blob


def test_a_record_that_is_too_large_is_read_as_it_was_sent(stored: KafkaSettings) -> None:
    assert read(stored, rules=ReadingRules(folds=True)) == [control.lost(), LARGE, control.lost()]

    blob = kept_reference(stored)
    assert (blob.record, blob.size > CONTROL.max_record_bytes) == ("WorkerLost", True)


def test_a_process_that_folds_stops_at_a_blob_that_is_gone_and_an_observer_counts_it(
    stored: KafkaSettings,
) -> None:
    FsspecStore(str(stored.blobs)).remove(kept_reference(stored).sha256)

    with pytest.raises(BlobUnavailable, match="is not there"):
        read(stored, rules=ReadingRules(folds=True))
    observed = read(stored)[1]
    assert isinstance(observed, Unreadable) and isinstance(observed.missed, BlobUnavailable)


@pytest.fixture
def system(broker: KafkaSettings, tmp_path: Path) -> Iterator[ManagerSystem]:
    settings = broker.model_copy(update={"blobs": (tmp_path / "blobs").as_uri()})
    with manager_system(settings, tmp_path) as made:
        made.start_manager(SEAMLESSFLOW_KAFKA__BLOBS=str(settings.blobs))
        made.announce("w0", 3)
        yield made


def test_a_trajectory_that_is_too_large_for_its_topic_keeps_its_tokens(
    system: ManagerSystem, tmp_path: Path
) -> None:
    system.open_session("s")
    sampled = []
    for number in range(2):  # each completion is too large for a record of `sessions` also
        asked = system.generate(system.request("s", [message("user", f"key {number}")]).turn_id)
        many = np.full(1_200_000, number, np.int32).tobytes()
        system.output(
            r.TurnCompleted,
            asked,
            many,
            finish_reason="length",
            message=message("assistant", "long"),
            well_formed=True,
            prompt_length=len(asked.prompt_ids) // 4,
            prompt_hash=xxhash.xxh3_128_digest(asked.prompt_ids),
        )
        assert system.finished(asked.turn_id).status == 200
        sampled.append(many)

    trajectory = system.reward_and_close("s", 1.0)

    assert len(trajectory.tokens) > TRAJECTORIES.max_record_bytes / 3
    assert all(many in trajectory.tokens for many in sampled)
    assert sum(trajectory.loss_mask) == 2_400_000 and trajectory.status == "complete"
    assert len(list((tmp_path / "blobs").iterdir())) == 3
