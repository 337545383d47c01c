"""Workers that train together, against `trainer.ranks` and `scheduler.gang_size`."""

from typing import Any

import pytest

from seamlessflow.config_file import as_written, parse
from seamlessflow.processes.ranks import first_ranks, gang_faults

KAFKA = {"bootstrap_servers": "kafka.example:9092"}


def faults(trainers: int, **values: Any) -> list[str]:
    """Return the faults of workers that train, each with its own rank, and of one that does not."""
    workers: list[dict[str, object]] = [{"id": "r"}]
    for rank in range(trainers):
        environment = {"SEAMLESSFLOW_TRAINER__RANK": str(rank)}
        workers.append({"id": f"t{rank}", "tags": ["train"], "environment": environment})
    config = parse({"workers": workers, **values})
    return [fault.line(as_written) for fault in gang_faults(config)]


def ranks(number: int) -> dict[str, object]:
    return {"backend": "fsdp2", "ranks": number}


def test_as_many_workers_as_ranks_make_a_gang() -> None:
    assert faults(1) == []
    assert faults(2, trainer=ranks(2)) == []
    assert faults(2, trainer=ranks(2), scheduler={"gang_size": 2}) == []


@pytest.mark.parametrize(("trainers", "number"), [(2, 3), (2, 1), (3, 2)])
def test_a_gang_of_another_size_than_the_ranks_is_a_fault(trainers: int, number: int) -> None:
    [line] = faults(trainers, trainer=ranks(number))
    names = ", ".join(f"t{rank}" for rank in range(trainers))
    gang = f"the gang is {names}: {trainers} devices, trainer.ranks is {number}: set "
    assert line.startswith(f"trainer.ranks: {gang}")


def test_a_back_end_of_one_device_is_named_where_several_train() -> None:
    [line] = faults(2)
    text = "torch trains on one device, and t0, t1 have 2: set fsdp2, and trainer.ranks 2"
    assert line == f"trainer.backend: {text}"


def test_each_device_of_a_worker_is_a_rank() -> None:
    workers = [
        {"id": "a", "tags": ["train"], "devices": [0, 1]},
        {"id": "b", "tags": ["rollout", "train"], "devices": [2, 3]},
    ]
    assert list(gang_faults(parse({"workers": workers, "trainer": ranks(4)}))) == []
    assert first_ranks(parse({"workers": workers, "trainer": ranks(4)})) == {"a": 0, "b": 2}
    assert len(list(gang_faults(parse({"workers": workers, "trainer": ranks(2)})))) == 1


def test_the_scheduler_must_form_a_gang_of_all_ranks() -> None:
    [line] = faults(2, trainer=ranks(2), scheduler={"gang_size": 1})
    assert line == "scheduler.gang_size: is 1, but trainer.ranks is 2"


@pytest.mark.parametrize("policy", ["adaptive", "bidirectional"])
def test_a_strategy_with_gangs_of_several_sizes_needs_the_one_that_trains(policy: str) -> None:
    devices = [[0, 1], [2, 3]]
    workers = [
        {"id": f"w{number}", "tags": ["rollout", "train"], "devices": pair}
        for number, pair in enumerate(devices)
    ]

    def fault_lines(**scheduler: object) -> list[str]:
        section = {"policy": policy, **scheduler}
        config = parse({"workers": workers, "trainer": ranks(4), "scheduler": section})
        return [fault.line(as_written) for fault in gang_faults(config)]

    [line] = fault_lines()
    assert line == (
        f"scheduler.policy: {policy} forms gangs of 2 to 4 devices, and a run trains on 4 alone "
        "(trainer.ranks): set scheduler.gang_size to 4, or compare strategies with seamlessflow "
        "simulate"
    )
    assert fault_lines(gang_size=4) == []
    assert faults(1, scheduler={"policy": policy}) == [], "one worker is always the gang"


def test_further_ranks_may_be_on_other_machines_of_a_cluster() -> None:
    assert faults(2, trainer=ranks(4), kafka=KAFKA) == []
    assert len(faults(3, trainer=ranks(2), kafka=KAFKA)) == 1


def test_a_file_that_names_several_nodes_has_all_ranks() -> None:
    workers = [{"id": name, "tags": ["rollout", "train"], "node": name} for name in ("a", "b")]
    config = parse({"workers": workers, "trainer": ranks(3), "kafka": KAFKA})
    [line] = [fault.line(as_written) for fault in gang_faults(config)]
    assert line.startswith("trainer.ranks: the gang is a, b: 2 devices, trainer.ranks is 3: set ")


def test_two_workers_of_one_rank_are_a_fault() -> None:
    environment = {"SEAMLESSFLOW_TRAINER__RANK": "0"}
    workers = [
        {"id": name, "tags": ["rollout", "train"], "environment": environment}
        for name in ("a", "b")
    ]
    config = parse({"workers": workers, "trainer": ranks(2)})
    assert [fault.line(as_written) for fault in gang_faults(config)] == [
        "workers: a, b have the same trainer.rank 0: set SEAMLESSFLOW_TRAINER__RANK in the "
        "environment of each"
    ]
