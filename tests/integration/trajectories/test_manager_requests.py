"""Requests beyond one conversation in an opened session: names, modules, counts, retries."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.schemas.tokens import pack
from tests.builders.records import commands
from tests.builders.records.content import message
from tests.builders.trajectories.manager_system import (
    POLICY,
    ManagerSystem,
    manager_system,
)

pytestmark = pytest.mark.kafka
TERMS = r.SessionTerms(policy=POLICY, agent="harness/1")


@pytest.fixture(scope="module")
def served(
    broker: KafkaSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ManagerSystem]:
    """Yield a manager with the policy on w0, and the policy `thinker` on w1."""
    with manager_system(broker, tmp_path_factory.mktemp("tokenizer")) as made:
        made.publish_policy("thinker")
        made.publish_policy("broken", tokenizer=Path("/nowhere"))
        made.start_manager()
        made.announce("w0", 3)
        made.announce("w1", 4, policy="thinker")
        yield made


def answered(
    system: ManagerSystem, command: r.RequestTurn, text: str
) -> tuple[r.GenerateTurn, bytes]:
    """Complete a turn; return the worker's prompt and the message of the answer."""
    asked = system.generate(command.turn_id)
    system.complete(asked, text)
    reply = system.finished(command.turn_id)
    assert reply.status == 200 and reply.message is not None
    return asked, reply.message


def test_a_session_that_nobody_opened_begins_with_its_first_requests(served: ManagerSystem) -> None:
    first = served.request("named", [message("user", "a")], terms=TERMS)
    second = served.request("named", [message("user", "b")], terms=TERMS)
    asked, _ = answered(served, first, "x")
    answered(served, second, "y")

    trajectory = served.reward_and_close("named", 1.0)

    assert asked.session_id == trajectory.session_id
    assert trajectory.session_id.startswith("named~")
    assert trajectory.turns == 2


def test_a_closed_session_of_a_name_begins_anew(served: ManagerSystem) -> None:
    ids = []
    for _ in range(2):
        asked, _ = answered(
            served, served.request("again", [message("user", "a")], terms=TERMS), "x"
        )
        ids.append(asked.session_id)
        assert served.reward_and_close("again", 1.0).turns == 1

    assert ids[0] != ids[1]


def test_a_reward_by_name_goes_to_the_session_that_was_closed_and_waits_for_it(
    served: ManagerSystem,
) -> None:
    first, _ = answered(served, served.request("late", [message("user", "a")], terms=TERMS), "x")
    served.close("late", await_reward_ms=60_000)
    answered(served, served.request("late", [message("user", "a")], terms=TERMS), "x")

    served.reward("late", 0.25)

    trajectory = served.expect("trajectories", r.Trajectory)
    assert trajectory.session_id == first.session_id
    assert [reward.value for reward in trajectory.rewards] == [0.25]


def test_without_terms_an_unknown_session_is_refused(served: ManagerSystem) -> None:
    command = served.request("nobody", [message("user", "a")])
    assert served.answer(command.command_id).status == 404


def test_a_name_of_unknown_policy_is_refused(served: ManagerSystem) -> None:
    terms = r.SessionTerms(policy=POLICY, policies={"m": "unheard"})
    command = served.request("other", [message("user", "a")], terms=terms)
    assert served.answer(command.command_id).reason == "unknown_policy"


def test_a_module_is_answered_by_its_policy(served: ManagerSystem) -> None:
    served.open_session("modules", policies={"planner": "thinker"})
    planner, _ = answered(
        served, served.request("modules", [message("user", "a")], module="planner"), "x"
    )
    coder, _ = answered(
        served, served.request("modules", [message("user", "a")], module="coder"), "y"
    )

    assert (planner.worker, planner.policy) == ("w1", "thinker")
    assert (coder.worker, coder.policy) == ("w0", POLICY)
    nodes = served.reward_and_close("modules", 1.0).nodes
    assert [node.policy for node in nodes if node.origin == "policy"] == ["thinker", POLICY]


def test_a_policy_that_cannot_be_rendered_stops_nobody_else(served: ManagerSystem) -> None:
    served.open_session("unreadable", policies={"m": "broken"})
    refused = served.request("unreadable", [message("user", "a")], module="m")
    assert served.answer(refused.command_id).status == 400

    answered(served, served.request("unreadable", [message("user", "a")]), "x")


def test_arguments_of_the_template_shape_the_prompt(served: ManagerSystem) -> None:
    served.open_session("shaped")
    plain = served.request("shaped", [message("user", "a")])
    hasty = served.request(
        "shaped", [message("user", "a")], template_args=b'{"enable_thinking":false}'
    )
    wrong = served.request("shaped", [message("user", "a")], template_args=b'{"speed":3}')

    prompts = [served.generate(request.turn_id).prompt_ids for request in (plain, hasty)]
    assert prompts[1].startswith(prompts[0]) and prompts[1] != prompts[0]
    refused = served.answer(wrong.command_id)
    assert refused.status == 400 and "speed" in refused.detail


def test_a_request_goes_on_from_the_turn_it_names(served: ManagerSystem) -> None:
    served.open_session("previous")
    first = served.request(
        "previous", [message("system", "old"), message("user", "a")], own_messages=1
    )
    asked, said = answered(served, first, "x")
    same = served.request(
        "previous",
        [message("system", "old"), message("user", "b")],
        own_messages=1,
        previous_turn=first.turn_id,
    )
    extended, _ = answered(served, same, "y")
    other = served.request(
        "previous",
        [message("system", "new"), message("user", "b")],
        own_messages=1,
        previous_turn=first.turn_id,
    )
    rendered, _ = answered(served, other, "z")

    whole = [message("system", "new"), message("user", "a"), said, message("user", "b")]
    assert extended.prompt_ids.startswith(asked.prompt_ids)
    assert rendered.prompt_ids == served.renderer.render([orjson.loads(text) for text in whole])
    unknown = served.request("previous", [message("user", "b")], previous_turn="none")
    assert served.answer(unknown.command_id).reason == "previous_response_not_found"
    rules = served.reward_and_close("previous", 1.0).match_rules
    assert dict(rules) == {"root": 2, "render": 1}  # this template drops thinking, so no bridge


def test_plain_text_goes_on_from_the_exact_ids_of_an_earlier_turn(served: ManagerSystem) -> None:
    def raw(content: object) -> list[bytes]:
        member = "content" if isinstance(content, str) else "ids"
        return [orjson.dumps({member: content, "role": "raw"}, option=orjson.OPT_SORT_KEYS)]

    served.open_session("raw")
    first, _ = answered(served, served.request("raw", raw("once upon"), raw=True), " a time")
    second, _ = answered(
        served, served.request("raw", raw("once upon a time there"), raw=True), " was"
    )
    third, _ = answered(served, served.request("raw", raw([5, 6, 7]), raw=True), "!")

    stop = pack(served.renderer.stop_token_ids[:1])
    sampled = served.renderer.encode(" a time")
    assert first.prompt_ids == served.renderer.encode("once upon")
    assert second.prompt_ids == first.prompt_ids + sampled + served.renderer.encode(" there")
    assert stop not in second.prompt_ids
    assert len(third.prompt_ids) == 12
    rules = served.reward_and_close("raw", 1.0).match_rules
    assert dict(rules) == {"root": 2, "extend": 1}


def test_tokens_are_counted_without_a_turn(served: ManagerSystem) -> None:
    served.open_session("counted")
    messages = (message("user", "how many"),)
    turn = served.request("counted", messages)
    length = len(served.generate(turn.turn_id).prompt_ids) // 4
    for command_id, session, terms in (
        ("c1", "counted", None),
        ("c2", "free", TERMS),
        ("c3", "free", None),
    ):
        served.command(
            commands.count_tokens(
                command_id=command_id,
                session_id=session,
                messages=messages,
                terms=terms,
                expires_at_ms=turn.expires_at_ms,
                reply=turn.reply,
            )
        )

    assert served.answer("c1").tokens == length
    assert served.answer("c2").tokens == length
    assert served.answer("c3").status == 404


def test_a_retry_of_a_streamed_turn_is_told_what_was_streamed_before(served: ManagerSystem) -> None:
    served.open_session("stream")
    history = [message("user", "a")]
    first = served.request("stream", history, stream=True, idempotency_key="k")
    asked = served.generate(first.turn_id)
    begun = served.renderer.encode("he")
    served.output(r.TurnProgressed, asked, begun, delta=b'{"content":"he"}')
    served.expect("replies", r.ReplyDelta, lambda record: record.turn_id == first.turn_id)

    retry = served.request("stream", history, stream=True, idempotency_key="k", retry_count=1)

    assert served.answer(retry.command_id).turn_id == first.turn_id
    again = served.expect("replies", r.ReplyDelta, lambda record: record.turn_id == first.turn_id)
    assert (again.token_offset, again.delta) == (0, b'{"content":"he"}')
    assert again.prompt_tokens == len(asked.prompt_ids) // 4
