"""Session calls with several gateways: each gets some, and one that is gone costs no call."""

from seamlessflow.infra.network.addresses import free_port
from seamlessflow.producers.agents.gateway_client.client import GatewayClient
from seamlessflow.producers.agents.gateway_client.ending import CloseCall
from tests.integration.agents.one_episode import a_task
from tests.integration.agents.scripted_gateway import (
    Answering,
    ScriptedGateway,
    accepting,
    on_uvloop,
    refusal,
)

SESSIONS = [f"s{number}" for number in range(6)]
CLOSE = CloseCall("complete", "", "policy")


def call(*answering: Answering) -> list[ScriptedGateway]:
    """Open and close the sessions at such gateways and one that is gone; return the gateways."""

    async def main() -> list[ScriptedGateway]:
        first, second = (ScriptedGateway(each) for each in answering)
        async with first.serving(), second.serving():
            urls = f"http://127.0.0.1:{free_port()},{first.url},{second.url}"
            client = GatewayClient(urls, "admin", 5)
            for name in SESSIONS:
                assert await client.open(name, a_task(), "tester", 60, 30) is not None
                assert await client.close(name, CLOSE)
            client.disconnect()
        return [first, second]

    return on_uvloop(main())


def test_both_gateways_that_serve_get_sessions_and_each_call_is_made_once() -> None:
    first, second = call(accepting, accepting)
    assert len(first.calls) == len(second.calls) == len(SESSIONS)
    assert len({made.key for made in first.calls + second.calls}) == 2 * len(SESSIONS)


def test_a_call_that_one_gateway_refuses_for_now_goes_to_the_other_with_its_key() -> None:
    first, second = call(lambda *_: refusal(503, "draining"), accepting)
    assert len(second.calls) == 2 * len(SESSIONS)
    assert [made.key in {other.key for other in second.calls} for made in first.calls] == [True]
