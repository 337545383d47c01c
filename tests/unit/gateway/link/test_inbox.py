import asyncio

import pytest

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.producers.gateway.link.inbox import ChoiceReply, ReplyInbox
from tests.builders.records.replies import delta


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
