"""Plain prompts through everything, and what manager and engine refuse, as OpenAI's client sees it:
real Kafka, a real engine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from tests.e2e.parity import PARITY, plain_logprobs
from tests.e2e.running_system import POLICY, RunningSystem, running_system

pytestmark = pytest.mark.kafka
CONTEXT = 512
USER: Any = {"role": "user", "content": "key 7"}


@pytest.fixture(scope="module")
def flow(
    broker: KafkaSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningSystem, Path]]:
    with running_system(broker, tmp_path_factory.mktemp("completions")) as made:
        weights = made.publish_weights(0, seed=1)
        made.start_gateway()
        made.start("manager", "seamlessflow.consumers.trajectories")
        made.start_worker("w0")
        made.give_role("w0", 0)
        made.await_ready()
        yield made, weights


@pytest.fixture
def session(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).replace("[", ".").replace("]", "")


@pytest.fixture
def client(flow: tuple[RunningSystem, Path], session: str) -> Iterator[openai.OpenAI]:
    made, _ = flow
    opened = made.admin("/sessions", session_id=session, policy=POLICY)
    assert opened.status_code == 201, opened.text
    body = opened.json()
    with openai.OpenAI(
        base_url=body["base_url"], api_key=body["api_key"], timeout=60, max_retries=0
    ) as opened_client:
        yield opened_client


def assert_sampled_behind_what_stands_before(weights: Path, trajectory: r.Trajectory) -> None:
    """Check the log-probs of each answer against a plain forward pass over prompt and answer."""
    nodes = {node.node_id: node for node in trajectory.nodes}

    def node_part(node: r.TrajectoryNode, array: bytes) -> bytes:
        return array[4 * node.start : 4 * (node.start + node.length)]

    def before(node: r.TrajectoryNode) -> bytes:
        if node.parent < 0:
            return b""
        parent = nodes[node.parent]
        return before(parent) + node_part(parent, trajectory.tokens)[: 4 * node.parent_end]

    answers = [node for node in trajectory.nodes if node.origin == "policy"]
    assert len(answers) == trajectory.turns
    for node in answers:
        plain = plain_logprobs(weights, before(node) + node_part(node, trajectory.tokens))
        sampled = memoryview(node_part(node, trajectory.logprobs)).cast("f").tolist()
        assert sampled == pytest.approx(plain[-node.length :].tolist(), abs=PARITY)


def ids_of(names: list[str]) -> list[int]:
    return [int(name.removeprefix("token_id:")) for name in names]


def test_a_text_that_goes_on_from_an_answer_extends_its_turn(
    flow: tuple[RunningSystem, Path], client: openai.OpenAI, session: str
) -> None:
    made, weights = flow
    first = client.completions.create(model=POLICY, prompt="key 7", max_tokens=8)
    prompt = f"key 7{first.choices[0].text} and then"
    client.completions.create(model=POLICY, prompt=prompt, max_tokens=8)
    trajectory = made.end(session)
    assert trajectory.match_rules == {"root": 1, "extend": 1}
    assert_sampled_behind_what_stands_before(weights, trajectory)


def test_token_ids_are_sampled_from_as_they_are(
    flow: tuple[RunningSystem, Path], client: openai.OpenAI, session: str
) -> None:
    made, weights = flow
    prompt = [5, 6, 7]
    answer = client.completions.create(model=POLICY, prompt=prompt, max_tokens=6, logprobs=0)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.tokens is not None
    trajectory = made.end(session)
    spelt = memoryview(trajectory.tokens).cast("i").tolist()
    assert spelt == prompt + ids_of(logprobs.tokens)
    assert logprobs.token_logprobs == pytest.approx(
        memoryview(trajectory.logprobs).cast("f").tolist()[len(prompt) :]
    )
    assert_sampled_behind_what_stands_before(weights, trajectory)


def generated(client: openai.OpenAI, ids: list[int], **parameters: Any) -> Any:
    """Make a call of vLLM's `/inference/v1/generate`, which lies beside `/v1`; return its body."""
    base = str(client.base_url).rstrip("/").removesuffix("/v1")
    sent = {"token_ids": ids, "sampling_params": {"logprobs": 1, **parameters}}
    return client.post(f"{base}/inference/v1/generate", cast_to=object, body=sent)


def test_ids_in_and_ids_out_are_a_conversation_of_one_chain(
    flow: tuple[RunningSystem, Path], client: openai.OpenAI, session: str
) -> None:
    made, weights = flow
    ids = [5, 6, 7]
    logprobs = [0.0] * len(ids)
    for behind in ([8, 9], [10]):
        choice = generated(client, ids, max_tokens=6)["choices"][0]
        ids += [*choice["token_ids"], *behind]
        logprobs += [entry["logprob"] for entry in choice["logprobs"]["content"]]
        logprobs += [0.0] * len(behind)
    trajectory = made.end(session)
    assert trajectory.match_rules == {"root": 1, "extend": 1}
    assert memoryview(trajectory.tokens).cast("i").tolist() == ids[:-1]
    assert memoryview(trajectory.logprobs).cast("f").tolist() == pytest.approx(logprobs[:-1])
    assert_sampled_behind_what_stands_before(weights, trajectory)


def test_a_client_whose_answers_would_end_elsewhere_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="answers of this policy end at"):
        generated(client, [5, 6], stop_token_ids=[7])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_likeliest_tokens_come_with_each_sampled_one(
    client: openai.OpenAI, stream: bool
) -> None:
    asked: Any = {"model": POLICY, "prompt": "key 7", "max_tokens": 20, "logprobs": 3}
    if stream:
        events = list(client.completions.create(**asked, stream=True))
        shown = [event.choices[0].logprobs for event in events]
    else:
        shown = [client.completions.create(**asked).choices[0].logprobs]
    scored = [logprobs for logprobs in shown if logprobs is not None]
    tops = [top for logprobs in scored for top in logprobs.top_logprobs or ()]
    pairs = [
        pair
        for logprobs in scored
        for pair in zip(logprobs.tokens or (), logprobs.token_logprobs or (), strict=True)
    ]
    assert len(tops) == len(pairs) > 0
    for top, (token, logprob) in zip(tops, pairs, strict=True):
        assert top[token] == logprob
        assert len(top) in (3, 4)
        assert list(top.values())[:3] == sorted(top.values(), reverse=True)[:3]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_chat_shows_the_likeliest_tokens_too(client: openai.OpenAI, stream: bool) -> None:
    asked: Any = {"model": POLICY, "messages": [USER], "max_tokens": 20}
    asked |= {"logprobs": True, "top_logprobs": 2}
    if stream:
        chunks = list(client.chat.completions.create(**asked, stream=True))
        shown = [chunk.choices[0].logprobs for chunk in chunks]
    else:
        shown = [client.chat.completions.create(**asked).choices[0].logprobs]
    tokens = [
        token for logprobs in shown if logprobs is not None for token in logprobs.content or ()
    ]
    assert tokens
    for token in tokens:
        first, second = token.top_logprobs
        assert first.logprob >= second.logprob
        assert token.logprob <= first.logprob


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_prompt_over_the_context_is_refused_in_the_words_of_openai(
    client: openai.OpenAI, stream: bool
) -> None:
    with pytest.raises(openai.BadRequestError, match="maximum context length is 512") as raised:
        client.completions.create(model=POLICY, prompt=[5] * CONTEXT, stream=stream)
    assert raised.value.code == "context_length_exceeded"
    long: Any = {"role": "user", "content": "key 7 " * CONTEXT}
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(model=POLICY, messages=[long], stream=stream)
    assert raised.value.code == "context_length_exceeded"
    assert raised.value.type == "invalid_request_error"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"response_format": {"type": "json_object"}}, "structured output"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"extra_body": {"min_p": 0.5}}, "min_p"),
    ],
    ids=["format", "penalty", "bias", "min_p"],
)
def test_what_this_engine_cannot_do_is_named(
    client: openai.OpenAI, asked: dict[str, Any], named: str, stream: bool
) -> None:
    with pytest.raises(openai.BadRequestError, match=named) as raised:
        client.chat.completions.create(model=POLICY, messages=[USER], stream=stream, **asked)
    assert raised.value.type == "invalid_request_error"


def test_a_token_that_the_model_does_not_have_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="outside the vocabulary") as raised:
        client.completions.create(model=POLICY, prompt=[2**31 - 1])
    assert raised.value.param == "prompt"
    assert client.completions.create(model=POLICY, prompt="key 7", max_tokens=1).choices
