"""The timeline as trace events: spans, instants, counters and names, as viewers read them."""

from typing import Any

from seamlessflow.lab.timeline.facts import facts
from seamlessflow.lab.timeline.trace_events import trace_events
from seamlessflow.scheduler.state.timeline import timeline
from tests.builders.records import control
from tests.builders.records.short_run import RUN


def events(kind: str, content: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    content = content or trace_events(timeline(RUN), facts(RUN), "a run")
    return [event for event in content["traceEvents"] if event["ph"] == kind]


def test_bars_of_a_worker_are_spans_with_their_largest_part_as_name() -> None:
    spans = [span for span in events("X") if span["pid"] == 2]

    assert [(span["name"], span["ts"], span["dur"]) for span in spans] == [
        ("switching role", 0, 10_000),
        ("under-filled", 10_000, 100_000),
        ("switching role", 110_000, 10_000),
        ("waits for its gang", 120_000, 10_000),
        ("training", 130_000, 70_000),
    ]
    assert spans[1]["args"] == {"decoding": "40.0%", "under-filled": "60.0%"}


def test_a_batch_waits_for_its_gang_and_then_is_a_step() -> None:
    wait, step = (span for span in events("X") if span["pid"] == 1)

    assert (wait["name"], wait["ts"], wait["dur"]) == ("waits for its gang", 90_000, 40_000)
    assert (step["name"], step["ts"], step["dur"]) == ("step 1", 130_000, 70_000)
    assert step["args"]["groups"] == 1
    assert step["args"]["trainable tokens"] == 7


def test_assignments_and_versions_are_instants() -> None:
    instants = [(event["name"], event["ts"]) for event in events("i")]

    assert instants == [
        ("policy v0", 0),
        ("policy v1", 180_000),
        ("assigned: rollout", 0),
        ("assigned: train", 110_000),
        ("loaded v0", 10_000),
    ]
    (first, _) = (event for event in events("i") if event["name"].startswith("assigned"))
    assert first["args"] == {"reason": "no batch", "gain": 0.123456}


def test_groups_under_way_are_a_counter() -> None:
    counted = [(event["ts"], event["args"]) for event in events("C")]
    assert counted == [(20_000, {"groups": 1}), (80_000, {"groups": 0})]


def test_lanes_have_names_and_each_event_is_on_one() -> None:
    lanes = {(name["pid"], name["tid"]): name["args"] for name in events("M") if name["tid"]}
    assert lanes[1, 1] == {"name": "batches"}
    assert (2, 1) in lanes
    assert {(span["pid"], span["tid"]) for span in events("X")} <= lanes.keys()


def test_control_codes_of_a_name_are_shown_and_not_obeyed() -> None:
    hostile = [control.claimed(at_ms=1), control.assigned("w\x1b[2J", at_ms=2)]
    content = trace_events(timeline(hostile), facts(hostile), "\x1b[2J")
    assert "\x1b" not in str([event.get("args") for event in events("M", content)])


def test_a_run_without_a_record_has_names_alone() -> None:
    content = trace_events(timeline([]), facts([]), "empty")
    assert {event["ph"] for event in content["traceEvents"]} == {"M"}
