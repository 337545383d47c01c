import asyncio
from dataclasses import dataclass

import pytest

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.producers.gateway.replies import ChoiceReply, PendingReplies, ReplyInbox
from tests.builders.records.replies import answered, delta, finished


@dataclass(eq=False)
class Waiter:
    waits_for: str
    for_turn: bool = True


def test_a_reply_goes_to_the_call_that_waits_for_it() -> None:
    pending: PendingReplies[Waiter] = PendingReplies()
    waiter, other = Waiter("a"), Waiter("b")
    pending.add(waiter)
    pending.add(other)
    assert list(pending.route(finished(turn_id="a"))) == [waiter]
    assert list(pending.route(finished(turn_id="c"))) == []


def test_a_call_that_left_gets_no_reply() -> None:
    pending: PendingReplies[Waiter] = PendingReplies()
    waiter = Waiter("a")
    pending.add(waiter)
    assert pending.remove(waiter)
    assert list(pending.route(finished(turn_id="a"))) == []
    assert len(pending) == 0
    assert pending.remove(waiter)


def test_a_retry_waits_for_the_turn_it_joined() -> None:
    pending: PendingReplies[Waiter] = PendingReplies()
    retry = Waiter("retry")
    pending.add(retry)
    assert list(pending.route(answered("retry", turn_id="original"))) == []
    assert list(pending.route(finished(turn_id="original"))) == [retry]
    assert pending.remove(retry)
    assert len(pending) == 0


def test_the_last_call_that_leaves_a_turn_is_known() -> None:
    pending: PendingReplies[Waiter] = PendingReplies()
    first, retry = Waiter("original"), Waiter("retry")
    pending.add(first)
    pending.add(retry)
    pending.route(answered("retry", turn_id="original"))
    assert list(pending.route(finished(turn_id="original"))) == [first, retry]
    assert not pending.remove(first)
    assert pending.remove(retry)


def test_a_repeated_join_changes_nothing() -> None:
    pending: PendingReplies[Waiter] = PendingReplies()
    retry = Waiter("retry")
    pending.add(retry)
    for _ in range(2):
        assert list(pending.route(answered("retry", turn_id="original"))) == []
    assert list(pending.route(finished(turn_id="original"))) == [retry]


def test_a_refusal_goes_to_the_call_that_waits_for_the_turn() -> None:
    pending: PendingReplies[Waiter] = PendingReplies()
    waiter = Waiter("a")
    pending.add(waiter)
    assert list(pending.route(answered("a", turn_id="a", status=404))) == [waiter]


def test_the_acceptance_of_a_turn_is_no_answer_to_it() -> None:
    pending: PendingReplies[Waiter] = PendingReplies()
    waiter = Waiter("a")
    pending.add(waiter)
    assert list(pending.route(answered("a", turn_id="a"))) == []
    assert list(pending.route(finished(turn_id="a"))) == [waiter]


def test_the_answer_to_a_reward_names_a_turn_and_is_still_the_answer() -> None:
    pending: PendingReplies[Waiter] = PendingReplies()
    command = Waiter("command", for_turn=False)
    pending.add(command)
    assert list(pending.route(answered("command", turn_id="judged turn"))) == [command]


def reply(offset: int) -> ChoiceReply:
    return 0, delta(offset, "x")


def test_replies_that_come_together_are_taken_together() -> None:
    async def taken() -> list[ChoiceReply]:
        inbox = ReplyInbox()
        waiting = asyncio.create_task(inbox.ready_replies())
        await asyncio.sleep(0)
        inbox.put(reply(0))
        inbox.put(reply(1))
        return await waiting

    assert asyncio.run(taken()) == [reply(0), reply(1)]


def test_replies_before_an_error_are_not_lost() -> None:
    inbox = ReplyInbox()
    for item in (reply(0), SeamlessFlowError("gone"), reply(1)):
        inbox.put(item)

    assert asyncio.run(inbox.ready_replies()) == [reply(0)]
    with pytest.raises(SeamlessFlowError, match="gone"):
        asyncio.run(inbox.ready_replies())
    assert asyncio.run(inbox.ready_replies()) == [reply(1)]
