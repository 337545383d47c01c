"""The console on a log with a million made-up records: opening, moments, memory, following.

    python -m benchmarks console [--records 1000000] [--workers 200] [--moments 60]
        [--pages 20] [--rate 400] [--follow-s 60]

A real embedded broker has the log, and the command `seamlessflow console` reads it. Half the
records are session events, seven a session; a quarter are heartbeats, an eighth is `control`.

- `open_s`, `open_records_per_s`: from the command to the last record read
- `moment_ms_*`: answers from the page Now at random moments, as JSON; `_page_` as HTML
- `sessions_ms`, `records_ms`: first pages in the lists, the search for a type in all records
- `curves_ms`, `timeline_ms`: the page with all steps, and the data for all workers' bars, which
  fold the whole `control`: `--records 810000 --workers 1000` has 100 steps of 1,000 workers
- `text_ms`, `text_records`: two seconds of a text search, which reads records again, and how many
  it read
- `memory_mb`: the process's memory after that; `following_cpu`: its share of a core while `--rate`
  records come each second and `--pages` live pages are open
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, cycle
from statistics import median

import httpx

from benchmarks.load.children import ROOT, cpu_s, peak_mb
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, FLEET, PROMPTS, SESSIONS, TOPICS, Topic, fleet_key
from tests.builders.records import content, control, fleet, prompts, sessions

_FLUSH_EVERY = 50_000
_DEADLINE_S = 900.0
_GROUP = 8
_POLICY = "policy"
_IDS = content.ids(*range(40))
_EIGHT = ("session", "fleet", "session", "control", "session", "fleet", "session", "prompt")
"""Sources for eight records in a row."""

Sending = tuple[Topic, Record, str | None]


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks console", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--moments", type=int, default=60)
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--rate", type=int, default=400)
    parser.add_argument("--follow-s", type=float, default=60.0)
    asked = parser.parse_args(argv)
    made = made_up(asked.workers)
    with Broker(None, java=SHORT_LIVED) as broker:
        create_topics(broker.settings, TOPICS.values())
        _write(broker.settings, made, asked.records)
        began_s = time.monotonic()
        with (
            _console(broker.settings) as (url, process),
            httpx.Client(base_url=url, timeout=120) as client,
        ):
            opened = _opened(client, process.pid, asked.records, began_s)
            moments = _moments(client, asked.moments)
            memory = {"memory_mb": _resident_mb(process.pid), "peak_mb": peak_mb(process.pid)}
            followed = _followed(broker.settings, made, url, process.pid, asked)
    figures = {**opened, **moments, **memory, **followed}
    print(json.dumps({"benchmark": "console", **vars(asked), **figures}))


def made_up(workers: int) -> Iterator[Sending]:
    """Yield records without an end, as a run of so many workers would write them."""
    sources = {
        "session": _sessions(workers),
        "fleet": _heartbeats(workers),
        "control": _control(workers),
        "prompt": _prompts(),
    }
    for name in cycle(_EIGHT):
        yield next(sources[name])


def _sessions(workers: int) -> Iterator[Sending]:
    """Yield session events; sixty-four sessions are under way at a time."""
    lives = [_life(number, f"w{number % workers}") for number in range(64)]
    numbers = count(len(lives))
    for place in cycle(range(len(lives))):
        event = next(lives[place], None)
        if event is None:
            number = next(numbers)
            lives[place] = _life(number, f"w{number % workers}")
            event = next(lives[place])
        name: str = event.session_id  # type: ignore[attr-defined] # events of sessions have it
        yield SESSIONS, event, name


def _life(number: int, worker: str) -> Iterator[Record]:
    group = f"g-{number // _GROUP}"
    name = f"{group}.{number % _GROUP}.0"
    turn = f"t{number:x}"
    yield sessions.opened(session_id=name, policy=_POLICY, task_id=f"task-{group}", group_id=group)
    asked = content.message("user", "x" * 300)
    yield sessions.started(turn, _IDS, session_id=name, new_messages=(asked,))
    yield sessions.dispatched(turn, session_id=name, worker=worker)
    answer = content.message("assistant", "y" * 150)
    yield sessions.completed(_IDS, turn, session_id=name, worker=worker, message=answer)
    yield sessions.rewarded(float(number % 2), session_id=name)
    yield sessions.closed(session_id=name)
    yield sessions.finalized(session_id=name)


def _heartbeats(workers: int) -> Iterator[Sending]:
    for number in count():
        beat = fleet.heartbeat(
            f"w{number % workers}", "rollout", role="rollout", running=number % 8, capacity=32
        )
        yield FLEET, beat, fleet_key(beat)


def _control(workers: int) -> Iterator[Sending]:
    yield from ((CONTROL, record, None) for record in _steps(workers))


def _steps(workers: int) -> Iterator[Record]:
    names = [f"w{number}" for number in range(workers)]
    for name in names:
        yield control.joined(name, "rollout")
        yield control.acquired(name, "rollout", 1)
    for step in count():
        groups = tuple(f"g-{4 * step + place}" for place in range(4))
        yield from (control.admitted(group) for group in groups)
        yield from (control.usage(name, decoding_ms=700, idle_ms=300) for name in names)
        yield control.batch_ready(step, groups=groups, policy=_POLICY)
        yield from (control.consumed(group, step) for group in groups)
        metrics = {"reward_mean": 0.5, "update_s": 1.0, "sessions": 32.0}
        yield control.completed(step, policy=_POLICY, metrics=metrics)


def _prompts() -> Iterator[Sending]:
    """Yield seven for each four sessions, about as many as these have events."""
    for number in count():
        session = 4 * number // 7
        name = f"g-{session // _GROUP}.{session % _GROUP}.0"
        yield PROMPTS, prompts.cancel(session_id=name, reason="x" * 200), name


def _write(kafka: KafkaSettings, made: Iterator[Sending], records: int) -> None:
    producer = Producer(kafka, "benchmark")
    for number in range(records):
        topic, record, key = next(made)
        producer.send(topic.name, record, key=key)
        if number % _FLUSH_EVERY == 0:
            producer.flush(_DEADLINE_S)
    producer.flush(_DEADLINE_S)
    producer.close()


@contextmanager
def _console(kafka: KafkaSettings) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Yield the command's address, and its process."""
    variables = {"SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    command = [sys.executable, "-m", "seamlessflow", "console", "--port", "0"]
    environment = {**os.environ, **variables}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            yield line.split()[-1], process
        finally:
            process.terminate()


def _opened(client: httpx.Client, pid: int, records: int, began_s: float) -> dict[str, float]:
    while True:
        frame = client.get("/now.json").json()["frame"]
        if frame["read"] >= records:
            break
        if time.monotonic() - began_s > _DEADLINE_S:
            raise TimeoutError(f"{frame['read']} of {records} records read")
        time.sleep(0.2)
    took_s = time.monotonic() - began_s
    return {
        "open_s": round(took_s, 1),
        "open_cpu_s": round(cpu_s(pid), 1),
        "open_records_per_s": round(records / took_s),
    }


def _moments(client: httpx.Client, moments: int) -> dict[str, float]:
    rng = random.Random(0)
    last = client.get("/now.json").json()["frame"]["slider"]["last"]
    as_json = [_ms(client, f"/now.json?at=control:{rng.randrange(last)}") for _ in range(moments)]
    as_page = [_ms(client, f"/now?at=control:{rng.randrange(last)}") for _ in range(moments)]
    listed = [_ms(client, f"/sessions?at=control:{rng.randrange(last)}") for _ in range(5)]
    searched = [_ms(client, "/records?type=SessionClosed&key=g-1*") for _ in range(5)]
    return {
        "moment_ms_median": round(median(as_json), 1),
        "moment_ms_p95": round(sorted(as_json)[int(0.95 * moments)], 1),
        "moment_ms_most": round(max(as_json), 1),
        "moment_page_ms_median": round(median(as_page), 1),
        "sessions_ms": round(median(listed), 1),
        "records_ms": round(median(searched), 1),
        "curves_ms": round(_ms(client, "/curves"), 1),
        "timeline_ms": round(_ms(client, "/timeline.json"), 1),
        **_text_search(client),
    }


def _text_search(client: httpx.Client) -> dict[str, float]:
    began_s = time.perf_counter()
    answer = client.get("/records.json?topic=sessions&text=nowhere")
    took_ms = 1000 * (time.perf_counter() - began_s)
    return {"text_ms": round(took_ms, 1), "text_records": answer.json()["page"]["looked"]}


def _ms(client: httpx.Client, path: str) -> float:
    began_s = time.perf_counter()
    answer = client.get(path)
    took_ms = 1000 * (time.perf_counter() - began_s)
    if answer.status_code != 200:
        raise RuntimeError(f"{path}: {answer.status_code} {answer.text[-300:]}")
    return took_ms


def _followed(
    kafka: KafkaSettings,
    made: Iterator[Sending],
    url: str,
    pid: int,
    asked: argparse.Namespace,
) -> dict[str, float]:
    """Return the console's share of a core while records come, without and with live pages."""
    stop = threading.Event()
    writer = threading.Thread(target=_append, args=(kafka, made, asked.rate, stop.is_set))
    writer.start()
    try:
        alone = _share(pid, asked.follow_s)
        with httpx.Client(base_url=url, timeout=None) as client:
            readers = [
                threading.Thread(target=_look, args=(client, stop.is_set), daemon=True)
                for _ in range(asked.pages)
            ]
            for reader in readers:
                reader.start()
            shown = _share(pid, asked.follow_s)
            stop.set()
            for reader in readers:
                reader.join()
    finally:
        stop.set()
        writer.join()
    return {"following_cpu": alone, "following_cpu_with_pages": shown}


def _append(
    kafka: KafkaSettings, made: Iterator[Sending], rate: int, stopping: Callable[[], bool]
) -> None:
    producer = Producer(kafka, "benchmark")
    due_s = time.monotonic()
    while not stopping():
        topic, record, key = next(made)
        producer.send(topic.name, record, key=key)
        due_s += 1 / rate
        time.sleep(max(0.0, due_s - time.monotonic()))
    producer.close()


def _look(client: httpx.Client, stopping: Callable[[], bool]) -> None:
    with client.stream("GET", "/live/now") as live:
        for _ in live.iter_raw():
            if stopping():
                return


def _share(pid: int, seconds: float) -> float:
    before_s = cpu_s(pid)
    began_s = time.monotonic()
    time.sleep(seconds)
    return round((cpu_s(pid) - before_s) / (time.monotonic() - began_s), 4)


def _resident_mb(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        match = re.search(r"VmRSS:\s+(\d+) kB", status.read())
    return int(match[1]) // 1024 if match else 0
