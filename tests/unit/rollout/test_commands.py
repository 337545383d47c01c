"""Commands run in the thread that owns the state, in order, each exactly once."""

import threading
from functools import partial

import pytest

from producers.rollout.commands import CommandQueue
from producers.rollout.engine_errors import EngineStateInvalid, EngineTimeout


def test_commands_run_in_the_order_they_came() -> None:
    commands = CommandQueue(timeout_s=10)
    seen: list[int] = []
    for number in range(5):
        commands.post("add", partial(seen.append, number))
    assert len(commands) == 5
    commands.run(wait=False)
    assert seen == [0, 1, 2, 3, 4]


def test_an_answer_and_an_error_come_back_to_who_asked() -> None:
    commands = CommandQueue(timeout_s=10)

    def serve() -> None:
        commands.run(wait=True)
        commands.run(wait=True)

    def fail() -> None:
        raise KeyError("seven")

    owner = threading.Thread(target=serve)
    owner.start()
    assert commands.ask("seven", lambda: 7) == 7
    with pytest.raises(KeyError, match="seven"):
        commands.ask("fail", fail)
    owner.join()


def test_a_question_nobody_answers_ends_at_its_deadline() -> None:
    with pytest.raises(EngineTimeout) as late:
        CommandQueue(timeout_s=0.01).ask("seven", lambda: 7)
    assert late.value.call == "seven"


def test_a_time_out_inside_an_answer_is_not_mistaken_for_the_deadline() -> None:
    commands = CommandQueue(timeout_s=10)

    def fail() -> None:
        raise TimeoutError("of something else")

    owner = threading.Thread(target=lambda: commands.run(wait=True))
    owner.start()
    with pytest.raises(TimeoutError, match="something else"):
        commands.ask("fail", fail)
    owner.join()


def test_what_was_accepted_before_closing_still_runs() -> None:
    commands = CommandQueue(timeout_s=10)
    seen: list[str] = []
    commands.post("add", lambda: seen.append("before"))
    commands.close(lambda: seen.append("last"))
    commands.close(lambda: seen.append("again"))
    with pytest.raises(EngineStateInvalid):
        commands.post("add", lambda: seen.append("after"))
    commands.run(wait=False)
    assert seen == ["before", "last"]
