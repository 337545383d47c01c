"""The records of `control` of a run with one worker and one step."""

from seamlessflow.schemas.records import Record
from tests.builders.records import control

RUN: list[Record] = [
    control.claimed(at_ms=1_000),
    control.published(0, at_ms=1_000),
    control.assigned("w", at_ms=1_000, reason="no batch", figures={"gain": 0.123456}),
    control.acquired("w", at_ms=1_010, version=0),
    control.admitted("g", at_ms=1_020),
    control.ready("g", at_ms=1_080),
    control.usage(decoding_ms=100, full_batch_ms=40, from_ms=1_010, at_ms=1_110),
    control.batch_ready(0, at_ms=1_090, groups=("g",), trainable_tokens=7),
    control.assigned("w", "train", 1, gang_epoch=1, at_ms=1_110, reason="a batch is ready"),
    control.released("w", "rollout", 1, at_ms=1_115),
    control.acquired("w", "train", 1, at_ms=1_120),
    control.started(["w"], at_ms=1_130),
    control.published(1, at_ms=1_180),
    control.completed(0, at_ms=1_200),
]
