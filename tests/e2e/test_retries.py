"""Retries of the official client: each gets its own answer, and never one of another call."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

from seamlessflow.infra.network.addresses import free_port
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from tests.e2e.running_system import POLICY, RunningSystem, client_of, running_system

pytestmark = pytest.mark.kafka
BEGINNING: list[ChatCompletionMessageParam] = [{"role": "user", "content": "key 7"}]


@pytest.fixture(scope="module")
def flow(
    broker: KafkaSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningSystem]:
    """Yield gateway and manager without a worker."""
    with running_system(broker, tmp_path_factory.mktemp("retries")) as made:
        made.publish_weights(0, seed=1)
        made.start_gateway()
        made.start("manager", "seamlessflow.consumers.trajectories")
        made.await_ready()
        yield made


def serve(made: RunningSystem) -> None:
    """Start a worker and assign it the rollout role."""
    if "w0" not in made.processes:
        made.start_worker("w0")
        made.give_role("w0", 0)


def second_gateway(made: RunningSystem) -> str:
    """Start a second gateway; return its URL."""
    port = str(free_port())
    made.start(
        "second gateway",
        "seamlessflow.producers.gateway",
        SEAMLESSFLOW_GATEWAY__PORT=port,
        SEAMLESSFLOW_GATEWAY__SECRET=made.secret,
    )
    return made.expect(r.GatewayHeartbeat, lambda heartbeat: heartbeat.url.endswith(f":{port}")).url


def ask(
    client: openai.OpenAI, messages: list[ChatCompletionMessageParam], **headers: str
) -> ChatCompletion:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.chat.completions.create(
        model=POLICY, messages=messages, max_tokens=8, extra_headers=named
    )


def test_a_call_that_is_made_at_two_gateways_is_one_turn_and_both_get_it(
    flow: RunningSystem,
) -> None:
    here = client_of(flow, "twice")
    other_client = here.with_options(base_url=f"{second_gateway(flow)}/v1")
    with ThreadPoolExecutor(2) as agents:
        first = agents.submit(ask, here, BEGINNING, idempotency_key="k")
        flow.expect(r.TurnStarted, lambda record: record.session_id == "twice")
        second = agents.submit(ask, other_client, BEGINNING, idempotency_key="k")
        flow.expect(r.TurnJoined, lambda record: record.session_id == "twice")
        serve(flow)
        answers = first.result(), second.result()

    assert answers[0].id == answers[1].id
    assert answers[0].choices == answers[1].choices
    assert flow.end("twice").turns == 1


def test_a_retry_gets_the_answer_again_until_the_agent_went_on_from_it(flow: RunningSystem) -> None:
    client = client_of(flow, "once")
    serve(flow)
    first = ask(client, BEGINNING)

    again = ask(client, BEGINNING, x_stainless_retry_count="1")
    said: ChatCompletionMessageParam = {
        "role": "assistant",
        "content": first.choices[0].message.content or "",
    }
    ask(client, [*BEGINNING, said, {"role": "user", "content": "key 8"}])
    another = ask(client, BEGINNING, x_stainless_retry_count="1")

    assert again.id == first.id != another.id
    assert flow.end("once").turns == 3


def test_the_key_of_another_request_is_refused_in_the_vendor_s_shape(flow: RunningSystem) -> None:
    client = client_of(flow, "reused")
    serve(flow)
    ask(client, BEGINNING, idempotency_key="k")

    with pytest.raises(openai.UnprocessableEntityError) as refused:
        ask(client, [{"role": "user", "content": "key 8"}], idempotency_key="k")

    assert refused.value.code == "idempotency_key_reused"
