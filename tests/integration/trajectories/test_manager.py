"""The trajectory manager as a process on a real broker: turns, retries, takeovers, dead letters."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from seamlessflow.infra.kafka.client import BEGINNING
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.unreadable import Raw
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import PROMPTS, REPLIES, REQUESTS
from tests.builders.records.content import message
from tests.builders.trajectories.manager_system import ManagerSystem, manager_system

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def tokenizer_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizer")


@pytest.fixture
def system(broker: KafkaSettings, tokenizer_directory: Path) -> Iterator[ManagerSystem]:
    """Yield new topics and no manager yet."""
    with manager_system(broker, tokenizer_directory) as made:
        yield made


@pytest.fixture(scope="module")
def served(broker: KafkaSettings, tokenizer_directory: Path) -> Iterator[ManagerSystem]:
    """Yield a manager that serves, and the worker w0 on slot 3."""
    with manager_system(broker, tokenizer_directory) as made:
        made.start_manager()
        made.announce("w0", 3)
        yield made


def test_turns_of_a_session_become_one_trajectory_token_for_token(served: ManagerSystem) -> None:
    """Holds invariant I1."""
    served.open_session("s1")
    history, sampled, prompts = [message("user", "key 7")], [], []
    for text in ("code 3", "code 4"):
        asked = served.generate(served.request("s1", history).turn_id)
        sampled.append(served.complete(asked, text))
        prompts.append(asked.prompt_ids)
        answer = served.finished(asked.turn_id)
        assert answer.status == 200 and answer.message is not None
        history += [answer.message, message("user", "again")]

    trajectory = served.reward_and_close("s1", 0.5)

    assert prompts[1].startswith(prompts[0] + sampled[0])
    assert trajectory.tokens == prompts[1] + sampled[1]
    policy = [node for node in trajectory.nodes if node.origin == "policy"]
    assert [
        trajectory.tokens[4 * node.start : 4 * (node.start + node.length)] for node in policy
    ] == sampled
    assert sum(trajectory.loss_mask) == sum(len(ids) // 4 for ids in sampled)
    assert [reward.value for reward in trajectory.rewards] == [0.5]


def test_a_turn_is_continued_on_another_worker_behind_the_tokens_it_has(
    served: ManagerSystem,
) -> None:
    served.open_session("s2")
    asked = served.generate(served.request("s2", [message("user", "key 7")], stream=True).turn_id)
    some = served.renderer.encode("code 3")[:4]
    served.output(r.TurnInterrupted, asked, some, reason="preempted", delta=b'{"content":"code"}')
    again = served.generate(asked.turn_id)
    sampled = served.complete(again, "code 3")
    served.finished(asked.turn_id)

    trajectory = served.reward_and_close("s2", 1.0)

    assert (again.dispatch, again.completion_ids) == (2, some)
    assert trajectory.interrupted_turns == 1
    assert trajectory.tokens == again.prompt_ids + sampled


def test_a_worker_that_begins_to_serve_gets_its_part_of_the_turns_behind_their_tokens(
    system: ManagerSystem,
) -> None:
    system.start_manager()
    system.announce("w0", 3)
    prompts = []
    for number in range(6):
        system.open_session(f"m{number}")
        asked = system.request(f"m{number}", [message("user", "key 7")], stream=number == 0)
        prompts.append(system.generate(asked.turn_id))
    begun, some = prompts[0], system.renderer.encode("code 3")[:4]
    system.output(r.TurnProgressed, begun, some, delta=b'{"content":"code"}')
    system.expect(REPLIES.name, r.ReplyDelta)

    system.announce("w1", 2)
    stopped = [system.expect(PROMPTS.name, r.CancelGeneration) for _ in range(2)]

    assert {record.reason for record in stopped} == {"rebalanced"}
    assert begun.turn_id not in {record.turn_id for record in stopped}
    for cancel in stopped:
        (before,) = (prompt for prompt in prompts if prompt.turn_id == cancel.turn_id)
        system.output(r.TurnInterrupted, before, some, reason="cancelled")
        again = system.generate(cancel.turn_id)
        assert (again.worker, again.dispatch, again.completion_ids) == ("w1", 2, some)
        system.complete(again, "code 3")
        assert system.finished(cancel.turn_id).status == 200


def test_a_killed_manager_costs_the_agent_only_time(system: ManagerSystem) -> None:
    first = system.start_manager(member="0")
    system.announce("w0", 3)
    system.open_session("s")
    before = system.request("s", [message("user", "key 7")])
    asked = system.generate(before.turn_id)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    system.complete(asked, "code 3")
    while_away = system.request("s", [message("user", "key 8")])

    system.announce("w0", 3)
    system.start_manager(member="1")

    assert system.finished(before.turn_id).status == 200
    system.complete(system.generate(while_away.turn_id), "code 4")
    assert system.finished(while_away.turn_id).status == 200
    assert system.reward_and_close("s", 1.0).turns == 2


def test_a_retry_gets_the_recorded_answer_and_is_trained_once(served: ManagerSystem) -> None:
    served.open_session("s3")
    history = [message("user", "key 7")]
    first = served.request("s3", history, idempotency_key="k")
    served.complete(served.generate(first.turn_id), "code 3")
    answer = served.finished(first.turn_id)

    retry = served.request("s3", history, idempotency_key="k", retry_count=1)

    assert served.answer(retry.command_id).turn_id == first.turn_id
    assert served.finished(first.turn_id).message == answer.message
    assert served.reward_and_close("s3", 1.0).turns == 1


@pytest.mark.parametrize(("status", "closed"), [(404, False), (409, True)])
def test_what_cannot_be_done_is_refused(served: ManagerSystem, status: int, closed: bool) -> None:
    if closed:
        served.open_session("s4")
        served.reward_and_close("s4", 0.0)

    command = served.request("s4", [message("user", "key 7")])

    assert served.answer(command.command_id).status == status


def test_an_undecodable_command_goes_to_the_dead_letters_and_the_rest_goes_on(
    served: ManagerSystem,
) -> None:
    served.producer.send_bytes(REQUESTS.name, b"garbage", "s6", partition=0)
    served.open_session("s6")

    letters = Reader(served.kafka, "letters", rules=ReadingRules(decode=Raw))
    letters.assign({(REQUESTS.dead_letters, 0): BEGINNING})
    (letter,) = letters.poll(20)
    letters.close()

    assert isinstance(letter.record, Raw) and letter.record.value == b"garbage"
    assert dict(letter.headers)["source-topic"] == REQUESTS.name.encode()
    assert b"no schema" in dict(letter.headers)["error"]


def test_a_session_that_cannot_be_folded_is_given_up_and_the_manager_serves_on(
    served: ManagerSystem,
) -> None:
    served.open_session("s7")
    served.open_session("s8")
    asked = served.generate(served.request("s7", [message("user", "key 7")]).turn_id)

    served.complete(asked, "code 3", message=b'{"tool_calls":[')

    answer = served.finished(asked.turn_id)
    assert (answer.status, answer.reason) == (500, "internal_error")
    made = served.expect("trajectories", r.Trajectory, lambda record: record.session_id == "s7")
    assert (made.status, made.reason, made.tokens) == ("aborted", "manager_failed", b"")
    assert served.reward_and_close("s8", 1.0).status == "complete"


def test_a_turn_nobody_can_take_waits_for_a_worker(system: ManagerSystem) -> None:
    system.start_manager()
    system.open_session("s")
    asked = system.request("s", [message("user", "key 7")])
    system.announce("w0", 3)

    assert system.generate(asked.turn_id).worker == "w0"
