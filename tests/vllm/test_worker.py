"""A worker that samples with vLLM, on a real broker, and the death of what it started."""

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoModelForCausalLM

from seamlessflow.demo.model import make_model
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.weights.manifest import Manifest, publish
from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.producers.rollout.settings import VllmSection
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.tokens import unpack
from tests.builders.models import plain_logprobs
from tests.builders.rollout.rollout_system import RolloutSystem, rollout_system
from tests.vllm.models import HEAD_DIM, LONG_CONTEXT, with_longer_context
from tests.waiting import until

pytestmark = pytest.mark.vllm
TURNS = 8
LONG = r.Sampling(max_tokens=2000)
WORKER = "w"
START_S = 600.0
TOLERANCE = 1e-4


@pytest.fixture
def weights(tmp_path: Path) -> PublishedWeights:
    """Return a published version 0."""
    facts = Manifest(policy="any", version=0, optimizer_step=0, lineage="l", dtype="float32")
    return publish(tmp_path / "weights", facts, make, sync=False).weights


def make(directory: Path) -> None:
    make_model(directory, seed=0, head_dim=HEAD_DIM)
    with_longer_context(directory / "config.json")


@pytest.fixture
def system(broker: KafkaSettings, weights: PublishedWeights) -> Iterator[RolloutSystem]:
    with rollout_system(broker, weights.path) as made:
        made.deadline_s = START_S
        made.max_context = LONG_CONTEXT
        yield made


def test_a_lost_engine_comes_back_with_its_worker_and_dies_with_it(
    system: RolloutSystem,
    section: VllmSection,
    weights: PublishedWeights,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_DATA_DIR", str(tmp_path))
    system.publish(f"policy-{WORKER}", weights)
    process = system.start_process(
        WORKER, f"policy-{WORKER}", engine="vllm", vllm=section.model_dump_json()
    )
    role = system.serve(WORKER, 1)
    turns = [f"t-{number}" for number in range(TURNS)]
    for number, turn_id in enumerate(turns):
        generate(system, role, turn_id, number)
    system.progressed(turns[0], 1)
    os.kill(named("EngineCore", process.pid), signal.SIGKILL)

    ends = {turn_id: system.wait(Record, partial(is_end_of, turn_id)) for turn_id in turns}
    # One that was quick enough is complete.
    cut = {each: end for each, end in ends.items() if isinstance(end, r.TurnInterrupted)}
    assert {record.reason for record in cut.values()} == {"engine_failed"}
    so_far = {each: b"".join(record.token_ids for record in written(system, each)) for each in cut}
    assert any(so_far.values())
    incarnation = system.incarnation(WORKER, other_than=role.incarnation)
    again = system.serve(WORKER, 1, incarnation)
    for turn_id, ids in so_far.items():
        generate(system, again, turn_id, turns.index(turn_id), dispatch=2, completion_ids=ids)
    plain = AutoModelForCausalLM.from_pretrained(weights.path)
    for number, turn_id in enumerate(turns):
        done = system.completed(turn_id)
        assert done.dispatch == (2 if turn_id in cut else 1)
        output = written(system, turn_id)
        completion = unpack(b"".join(record.token_ids for record in output))
        assert (len(completion) == LONG.max_tokens) == (done.finish_reason == "length")
        wanted = plain_logprobs(plain, prompt(number) + completion, len(prompt(number)))
        logprobs = np.frombuffer(b"".join(record.logprobs for record in output), "<f4")
        np.testing.assert_allclose(logprobs, wanted, rtol=0, atol=TOLERANCE)

    started = below(process.pid)
    assert any("api_server" in command_line(pid) for pid in started)
    process.kill()
    until(lambda: not started & running())


def generate(
    system: RolloutSystem, role: r.RoleAcquired, turn_id: str, number: int, **more: Any
) -> None:
    system.generate(
        role,
        turn_id,
        prompt(number),
        sampling=LONG,
        stream=True,
        deadline_ms=now_ms() + 600_000,
        **more,
    )


def prompt(number: int) -> list[int]:
    """Return a prompt of its own for each turn."""
    return [number + 20, 40, 41, 42, number + 60]


def is_end_of(turn_id: str, record: Record) -> bool:
    return isinstance(record, r.TurnInterrupted | r.TurnCompleted) and record.turn_id == turn_id


Written = r.TurnProgressed | r.TurnInterrupted | r.TurnCompleted


def written(system: RolloutSystem, turn_id: str) -> list[Written]:
    """Return the output records of a turn; check that they have no hole."""
    records: list[Written] = []
    length = 0
    for record in system.outputs(turn_id):
        assert isinstance(record, Written)
        assert record.token_offset == length
        length += len(record.token_ids) // 4
        records.append(record)
    return records


def named(name: str, ancestor: int) -> int:
    """Return a descendant of a process that has `name` in its command line: the first of several
    replicas.
    """
    return min(pid for pid in below(ancestor) if name in command_line(pid))


def below(ancestor: int) -> set[int]:
    """Return the ids of all descendants of a process."""
    pids = {ancestor}
    while more := {pid for pid, stat in stats().items() if int(stat[1]) in pids} - pids:
        pids |= more
    return pids - {ancestor}


def running() -> set[int]:
    """Return all processes, without zombies."""
    return {pid for pid, stat in stats().items() if stat[0] != "Z"}


def stats() -> dict[int, list[str]]:
    """Return state and parent of every process."""
    processes = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            processes[int(path.parent.name)] = path.read_text().rpartition(") ")[2].split()[:2]
        except OSError:
            continue
    return processes


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
