"""The page of a timeline: its data, and that it is one file that asks no address."""

import json
import re
import zlib
from base64 import b64decode
from dataclasses import replace

import pytest

from seamlessflow.lab.timeline.bars import COLOURS, LABELS
from seamlessflow.lab.timeline.facts import facts
from seamlessflow.lab.timeline.page import page, page_data
from seamlessflow.scheduler.state.accounts.device_time import WAITING
from seamlessflow.scheduler.state.timeline import timeline
from seamlessflow.schemas.records import (
    BatchReady,
    Record,
    RoleAssigned,
    StepCompleted,
    StepStarted,
)
from tests.builders.records import control
from tests.builders.records.short_run import RUN

OfPolicy = BatchReady | RoleAssigned | StepCompleted | StepStarted


def test_bars_are_gaps_lengths_and_mixes() -> None:
    data = page_data(timeline(RUN), facts(RUN), "a run")

    (worker,) = data["workers"]
    bars = [tuple(worker["bars"][at : at + 3]) for at in range(0, len(worker["bars"]), 3)]
    labels = list(LABELS.values())
    named = [
        (gap, length, {labels[part]: cent for part, cent in zip(mix[::2], mix[1::2], strict=True)})
        for gap, length, mix in ((gap, length, data["mixes"][mix]) for gap, length, mix in bars)
    ]
    assert named == [
        (0, 10, {"switching role": 100}),
        (0, 100, {"decoding": 40, "under-filled": 60}),
        (0, 10, {"switching role": 100}),
        (0, 10, {"waits for its gang": 100}),
        (0, 70, {"training": 100}),
    ]


def test_facts_of_steps_versions_groups_and_assignments_are_there() -> None:
    data = page_data(timeline(RUN), facts(RUN), "a run")

    assert data["steps"] == [[90, 130, 200, 1, 1, 1, 7, 1, ""]]
    assert data["versions"] == [[0, 0, "policy"], [180, 1, "policy"]]
    assert data["under_way"] == [20, 1, 60, 0]
    assert data["legend"].startswith("idle: all but decoding and training")
    (worker,) = data["workers"]
    assert worker["given"] == [0, 0, 110, 1]
    assert data["givens"][0] == ["rollout", "no batch", {"gain": 0.1235}, ""]
    assert worker["loaded"] == [10, 0]


def test_what_a_worker_waits_for_has_a_colour_of_its_own() -> None:
    labels = {name: COLOURS[name] for name in COLOURS if name != WAITING}

    assert len(set(labels.values())) == len(labels)


def test_steps_and_assignments_of_several_policies_are_marked_with_them() -> None:
    named = [replace(record, policy="coder") for record in RUN if isinstance(record, OfPolicy)]
    data = page_data(timeline([*RUN, *named]), facts([*RUN, *named]), "a run")

    assert [(step, policy) for *_, step, _, _, _, _, policy in data["steps"]] == [
        (1, ""),
        (1, "coder"),
    ]
    assert {policy for *_, policy in data["givens"]} == {"", "coder"}


def test_stalls_losses_time_outs_and_warnings_are_marks() -> None:
    ended = control.lost("w", "train", at_ms=1_305, reason="ended")
    records = [*RUN, control.lost("w", at_ms=1_300), ended, control.timed_out("w", at_ms=1_310)]

    assert page_data(timeline(records), facts(records), "a run")["marks"] == [
        [300, "rollout process of w lost: no_heartbeat"],
        [310, "w did not take train in 1 ms"],
    ]


def test_a_pause_of_the_run_is_a_mark_among_the_others() -> None:
    begin = control.claimed(), control.assigned("w", at_ms=0), control.acquired("w", at_ms=0)
    late = control.claimed(2, at_ms=90_000), control.lost("w", at_ms=90_100, epoch=2)
    assert page_data(timeline([*begin, *late]), facts([*begin, *late]), "a run")["marks"] == [
        [0, "no process of the run lived for 90 s"],
        [90_100, "rollout process of w lost: no_heartbeat"],
    ]


def test_a_decision_of_a_deposed_scheduler_is_no_fact() -> None:
    records = [control.claimed(2), control.assigned("w", epoch=1), control.lost("w", epoch=1)]

    assert not facts(records).assignments and not facts(records).marks


def test_the_page_holds_its_data_and_names_no_address() -> None:
    text = page(timeline(RUN), facts(RUN), "</script> of a run")

    (packed,) = re.findall(r'id="timeline-data">([^<]*)<', text)
    assert json.loads(zlib.decompress(b64decode(packed)))["title"] == "</script> of a run"
    assert not re.search(r"https?:|src=|@import|url\(", text)
    assert len(text) < 30_000


def test_a_page_may_be_of_a_directory_with_a_name_that_is_no_text() -> None:
    text = page(timeline(RUN), facts(RUN), "of \udce4 and \u202egnp")

    (packed,) = re.findall(r'id="timeline-data">([^<]*)<', text)
    assert json.loads(zlib.decompress(b64decode(packed)))["title"] == "of ? and \ufffdgnp"


@pytest.mark.parametrize("records", [[], [control.claimed(at_ms=5)]])
def test_a_log_without_a_worker_has_a_page(records: list[Record]) -> None:
    assert page_data(timeline(records), facts(records), "empty")["workers"] == []
