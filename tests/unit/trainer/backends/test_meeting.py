"""The ranks of a gang meet once all are there, each once, and none of another run."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from seamlessflow.infra.network.addresses import HOST
from seamlessflow.infra.network.line import Line, LineLost
from seamlessflow.trainer.backends.gang import GangRank, RankEnded
from seamlessflow.trainer.backends.meeting import (
    OWN,
    Meeting,
    RankRefused,
    WorkersAbsent,
    begun,
    came,
    differences,
    gang_facts,
)
from seamlessflow.trainer.policy import PolicySection
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings
from tests.builders.model_hub import COMMIT, LATER, snapshot_directory
from tests.builders.trainer.gangs.meetings import FACTS, coming, line, meeting

LIMIT_S = 120.0


class Leader(threading.Thread):
    """Rank 0, which waits for others in a thread of its own."""

    def __init__(self, others: int) -> None:
        super().__init__(daemon=True)
        self.meeting = meeting()
        self.others = others
        self.lines: Sequence[Line] = ()
        self.start()

    def run(self) -> None:
        self.lines = self.meeting.begin(self.others, "begin")

    def met(self) -> Sequence[Line]:
        self.join(LIMIT_S)
        assert not self.is_alive()
        return self.lines


@pytest.fixture
def leader() -> Iterator[Callable[[int], Leader]]:
    made: list[Leader] = []

    def make(others: int) -> Leader:
        made.append(Leader(others))
        return made[-1]

    yield make
    for first_rank in made:
        for opened in first_rank.met():
            opened.close()


def test_all_begin_once_all_devices_are_there_in_the_order_of_their_ranks(
    leader: Callable[[int], Leader],
) -> None:
    first = leader(3)
    place = first.meeting.place
    with closing(line(place, 3)) as last, closing(line(place, 1, 2)) as early:
        assert [begun(early), begun(last)] == ["begin", "begin"]
        for number, to in enumerate(first.met()):
            to.send(number)
        assert [early.receive(LIMIT_S), last.receive(LIMIT_S)] == [0, 1]
    assert not first.meeting.open


def test_rank_0_knows_the_lives_of_the_processes_that_it_met(
    leader: Callable[[int], Leader],
) -> None:
    waits = leader(2)
    first = replace(coming(1), incarnation="life")
    with closing(came(waits.meeting.place, first)), closing(line(waits.meeting.place, 2)):
        waits.met()
    assert waits.meeting.met == {"w1": "life"}


def test_a_rank_that_ended_before_all_were_there_comes_again(
    leader: Callable[[int], Leader],
) -> None:
    first = leader(2)
    place = first.meeting.place
    line(place, 1).close()
    with closing(line(place, 2)) as other, closing(line(place, 1)) as again:
        assert [begun(other), begun(again)] == ["begin", "begin"]


def test_a_rank_of_another_run_is_refused_by_what_differs_and_the_gang_waits_on(
    leader: Callable[[int], Leader],
) -> None:
    place = leader(1).meeting.place
    facts = {**FACTS, "run.policy": "other"}
    with pytest.raises(RankRefused, match=r"rank 1 .*: run\.policy is other, not main") as refused:
        came(place, coming(1, facts=facts))
    assert refused.value.lasting
    with closing(line(place, 1)) as right:
        assert begun(right) == "begin"


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n", b'{"rank": 1}\n', b"[1]\n", b""])
def test_another_program_at_the_meeting_is_sent_away(
    leader: Callable[[int], Leader], said: bytes
) -> None:
    first = leader(1)
    host, port = first.meeting.place.split(":")
    with socket.create_connection((host, int(port))) as other:
        other.settimeout(LIMIT_S)
        other.sendall(said)
        other.shutdown(socket.SHUT_WR)
        assert other.recv(1) == b""
    with closing(line(first.meeting.place, 1)) as right:
        assert begun(right) == "begin"


def test_a_process_that_must_end_waits_for_no_rank() -> None:
    with (
        closing(Meeting(HOST, FACTS, lambda: True)) as place,
        pytest.raises(WorkersAbsent, match=f"did not meet: 0 of 2 other .* came to {place.place}"),
    ):
        place.begin(2)


def test_a_rank_is_told_that_rank_0_ended_or_that_it_must_end_itself() -> None:
    with socket.create_server((HOST, 0)) as listener:
        connection = Line(socket.create_connection(listener.getsockname()))
        other, _ = listener.accept()
        with other, closing(connection):
            with pytest.raises(LineLost, match="the process ends"):
                begun(connection, lambda: True)
            assert not connection.lost
            other.shutdown(socket.SHUT_RDWR)
            with pytest.raises(LineLost, match="closed"):
                begun(connection)
            assert connection.lost


def model(directory: Path, config: str = "{}") -> Path:
    directory.mkdir()
    (directory / "config.json").write_text(config, encoding="utf-8")
    return directory


def settings(policy: Path, **trainer: Any) -> TrainerSettings:
    section = TrainerSection.model_validate(trainer)
    return TrainerSettings(policy=PolicySection(model=policy), trainer=section)


def test_ranks_differ_in_their_own_settings_alone(tmp_path: Path) -> None:
    rank_0 = {"worker": "w0", "rank": 0, "ranks": 3, "backend": "fsdp2", "devices": [0, 1]}
    other = {"worker": "w1", "rank": 2, "ranks": 3, "backend": "fsdp2", "host": "127.0.0.2"}
    here, other_model = model(tmp_path / "here"), model(tmp_path / "there")
    first = gang_facts(settings(here, **rank_0, teacher=here))
    assert differences(first, gang_facts(settings(other_model, **other, teacher=other_model))) == ""


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 7}, "trainer.seed is 7, not 0"),
        ({"loss": {"clip_low": 0.3}}, "trainer.loss.clip_low is 0.3, not 0.2"),
        ({"optimizer": {"lr": 0.5}}, "trainer.optimizer.lr is 0.5, not 1e-06"),
    ],
)
def test_another_setting_is_named_with_both_values(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    directory = model(tmp_path / "model")
    assert (
        differences(gang_facts(settings(directory)), gang_facts(settings(directory, **changed)))
        == message
    )


def test_another_model_is_told_by_its_content(tmp_path: Path) -> None:
    directory, other = model(tmp_path / "one"), model(tmp_path / "other", '{"layers": 2}')
    facts = gang_facts(settings(directory))
    assert differences(facts, gang_facts(settings(other))).startswith("policy.model is ")
    critic = gang_facts(settings(directory, critic={"model": other}))
    assert differences(facts, critic).startswith("trainer.critic.model is ")


def test_another_commit_of_a_model_is_named(tmp_path: Path) -> None:
    first, later = (snapshot_directory(tmp_path, "org/name", at) for at in (COMMIT, LATER))
    for directory in (first, later):
        directory.parent.mkdir(parents=True, exist_ok=True)
        model(directory)
    difference = differences(gang_facts(settings(first)), gang_facts(settings(later)))
    assert difference.startswith("policy.model is ")
    assert f"of org/name@{LATER}, not " in difference
    assert f"of org/name@{COMMIT}" in difference


def test_the_first_differences_are_named_and_the_others_counted() -> None:
    facts = {name: "1" for name in "abcde"}
    other = {name: "2" for name in "abcd"}
    assert differences(facts, other) == "a is 2, not 1; b is 2, not 1; c is 2, not 1; 2 more"


def test_every_setting_of_a_worker_s_own_exists() -> None:
    assert TrainerSection.model_fields.keys() >= OWN


@pytest.mark.soak  # it takes the minute of the limit
def test_a_rank_that_ends_before_the_group_is_formed_is_named() -> None:
    held = meeting()

    def come_and_end() -> None:
        way = line(held.place, 1)
        begun(way)
        way.close()

    ended = threading.Thread(target=come_and_end)
    ended.start()
    with pytest.raises(RankEnded, match="rank 1 of the gang ended"):
        GangRank(0, 2, held, torch.device("cpu"))
    ended.join()
    assert not torch.distributed.is_initialized()
