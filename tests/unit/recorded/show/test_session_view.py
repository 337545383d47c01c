from collections.abc import Sequence
from io import StringIO

from rich.console import Console

from seamlessflow.recorded.show.session_view import session_view
from seamlessflow.schemas import records as r
from tests.builders.records import sessions
from tests.builders.records.content import ids
from tests.builders.trajectories.conversation import forked
from tests.builders.trajectories.session_builder import SessionBuilder, session_after


def spell(tokens: Sequence[int]) -> str:
    return "".join(chr(ord("a") + token) for token in tokens)


def shown(built: SessionBuilder, every_token: bool = False, with_text: bool = True) -> str:
    console = Console(width=160, file=StringIO())
    with console.capture() as captured:
        console.print(session_view(built.session, spell if with_text else None, every_token))
    return captured.get()


def a_session() -> SessionBuilder:
    second = sessions.started("b", ids(7), parent_node=1, parent_end=3, match_rule="extend")
    built = session_after(
        sessions.started("a"),
        sessions.dispatched("a"),
        sessions.completed(ids(3, 4, 5)),
        second,
        sessions.dispatched("b"),
        sessions.interrupted(ids(8), "b"),
        sessions.dispatched("b", 2, from_offset=1),
        sessions.completed(
            ids(9, 10),
            "b",
            ids(7),
            dispatch=2,
            token_offset=1,
            spans=(r.VersionSpan(start=1, version_min=4, version_max=4),),
        ),
        sessions.rewarded(0.5),
        sessions.closed(),
        sessions.finalized(),
    )
    assert all(built.accepted)
    return built


def test_the_tree_says_who_said_what() -> None:
    text = shown(a_session())
    assert "s  policy p, train" in text
    assert "complete, reward 0.5" in text
    assert "node 0 prompt, 2 tokens, matched by root" in text
    assert "node 2 prompt, 1 tokens, behind 3 tokens of node 1, matched by extend" in text
    assert _token_lines(text) == ["bc", "def", "h", "ijk"]


def test_a_prompt_in_which_others_spoke_for_the_policy_says_so() -> None:
    for intervened in (False, True):
        text = shown(session_after(sessions.started("a", intervened=intervened)))
        assert ("matched by root, with an intervention" in text) is intervened


def test_a_failed_session_shows_the_error_of_its_traceback_and_the_limit_that_ended_it() -> None:
    reason = "Traceback (most recent call last):\n  agent.py\nBadRequestError: too long"
    end = sessions.closed(status="truncated", reason=reason, limit="context")
    text = shown(session_after(sessions.started("a"), end))
    assert "truncated (policy: BadRequestError: too long), ended at context" in text


def test_versions_continuations_and_masks_are_told() -> None:
    text = shown(a_session())
    assert "turn a, 3 tokens, version 0, stop, mean log-prob -0.250, trained" in text
    assert "version 0 → 4, stop, continued 1 times" in text


def test_a_turn_whose_prompt_is_not_confirmed_is_shown_as_masked() -> None:
    built = session_after(
        sessions.started(), sessions.dispatched(), sessions.completed(ids(3), prompt_hash=b"x" * 16)
    )
    assert "masked: prompt_mismatch" in shown(built)


def test_the_headline_says_how_many_tokens_were_lost_to_which_rule() -> None:
    bent = sessions.started(behavior_exact=False, inexact_reason="json_schema")
    built = session_after(bent, sessions.dispatched(), sessions.completed(ids(3, 4)))

    assert "not trained: 2 inexact_json_schema tokens" in shown(built)
    assert "not trained" not in shown(a_session())


def test_an_answer_that_no_client_got_is_shown_so() -> None:
    built = session_after(
        sessions.started(),
        sessions.dispatched(),
        sessions.completed(ids(3)),
        sessions.undelivered(),
    )

    assert "trained, not delivered" in shown(built)


def test_every_token_has_a_row_where_that_is_asked_for() -> None:
    rows = [line.split() for line in shown(a_session(), every_token=True).splitlines()]
    assert any(row[-6:] == ["1", "9", "'j'", "-0.250000", "4", "1"] for row in rows)


def test_without_a_tokenizer_ids_stand_for_tokens() -> None:
    assert "3 4 5" in shown(a_session(), with_text=False)


def _token_lines(text: str) -> list[str]:
    lines = [line.strip("│└├─ ") for line in text.splitlines()]
    return [line for line in lines if line.isalpha()]


def test_another_sample_of_a_prompt_shows_no_empty_prompt() -> None:
    again = sessions.started("b", b"", parent_node=0, parent_end=2, match_rule="render")
    built = session_after(sessions.started("a"), again)

    lines = [line.strip("│├└─ \n") for line in shown(built).splitlines()]

    assert any("0 tokens, behind 2 tokens of node 0" in line for line in lines)
    assert all(lines)


def test_a_fork_shows_where_it_came_from_and_the_tokens_it_copied() -> None:
    text = shown(forked(), with_text=False)
    assert "0 turns, forked from recorded behind the prompt of turn c (middle, 2 turns" in text
    assert "node 1 forked, 3 tokens, copied from turn a" in text
    assert "node 4 tool, 1 tokens, copied from the chosen prompt" in text
    assert "not trained" not in text
