"""A session's page: its tree, its turns with the workers that sampled them, its sums, its twin."""

import json
from typing import Any

from seamlessflow.console.views.session.page import SessionPage, overview, session_page, twin
from seamlessflow.console.views.session.reason import MEANINGS, TokenReason
from seamlessflow.console.views.session.trained_runs import NO_RUNS, TrainedRuns
from seamlessflow.schemas import records as r
from tests.builders.console.explained_sessions import (
    ANSWERED,
    ENDED,
    OPENED,
    READY,
    STEP,
    WHOLE,
    committed,
    explanation,
    finite,
    method,
    rows_of,
)
from tests.builders.records import control, sessions
from tests.builders.records.content import ids
from tests.paths import ROOT

LATER = r.VersionSpan(start=1, version_min=4, version_max=4)
HANDED_OVER = (
    sessions.started("b", ids(7), parent_node=1, parent_end=3, match_rule="extend"),
    sessions.dispatched("b"),
    sessions.interrupted(ids(8), "b"),
    sessions.dispatched("b", 2, from_offset=1, worker="v", reason="interrupted"),
    sessions.completed(
        ids(9, 10), "b", ids(7), dispatch=2, worker="v", token_offset=1, spans=(LATER,)
    ),
)


def as_json(thing: SessionPage) -> Any:
    return json.loads(twin(thing))


def test_a_hand_over_inside_an_answer_names_both_workers_and_their_versions() -> None:
    page = session_page(explanation([OPENED, *ANSWERED, *HANDED_OVER, *ENDED]), NO_RUNS)
    (_, handed) = page.turns
    parts = [(row.worker, row.begin, row.end, row.versions) for row in handed.stretches]
    assert parts == [("w", 6, 7, ("0",)), ("v", 7, 9, ("4",))]
    assert [row.interrupted for row in handed.stretches] == ["preempted", ""]
    assert [row.because for row in handed.stretches] == ["first", "interrupted"]
    assert handed.stretches[1].dispatched == "sessions:0:7"
    assert handed.stretches[1].output == "sessions:0:8"
    assert page.workers == ("w", "v")
    assert page.versions == (0, 4)


def test_output_of_a_worker_whose_dispatch_was_over_does_not_count() -> None:
    late = sessions.progressed(ids(11), "b", token_offset=1)
    events = [*HANDED_OVER[:4], late, HANDED_OVER[4]]
    page = session_page(explanation([OPENED, *ANSWERED, *events, *ENDED]), NO_RUNS)
    assert [row.worker for row in page.turns[1].stretches] == ["w", "v"]
    assert page.turns[1].length == 3


def test_a_tree_shows_where_it_forks() -> None:
    """Turn `b` goes on behind two tokens of the answer of `a`; turn `c` behind all of them."""
    half = sessions.started("b", ids(7), parent_node=1, parent_end=2, match_rule="render")
    whole = sessions.started("c", ids(8), parent_node=1, parent_end=3, match_rule="extend")
    page = session_page(explanation([OPENED, *ANSWERED, half, whole]), NO_RUNS)
    assert [(row.node, row.parent, row.branches, row.cut) for row in page.nodes] == [
        (0, -1, 1, False),
        (1, 0, 2, False),
        (2, 1, 1, True),
        (3, 2, 0, False),
        (4, 1, 1, False),
        (5, 4, 0, False),
    ]
    assert [turn.match_rule for turn in page.turns] == ["root", "render", "extend"]


def test_the_sums_of_a_page_are_those_of_its_tokens() -> None:
    runs = {STEP: [rows_of(0, 3, 4)]}
    commit = committed(2, methods=(method("loss", "ppo_clip"), method("mask", "m")))
    tokens = explanation(WHOLE, [READY, commit], runs)
    page = session_page(tokens, TrainedRuns(runs))
    assert (page.tokens, page.sampled, page.trained) == (5, 3, 2)
    assert {row.kind: row.tokens for row in page.kinds} == {"trained": 2, "prompt": 2, "masked": 1}
    assert page.outcome == "2 tokens of 3 sampled: trained in step 1, which made version 1"
    assert page.turns[0].trained == 2


def test_a_page_names_the_steps_with_their_figures() -> None:
    done = control.completed(0, metrics={"clip_fraction": 0.25, "reward_mean": 1.0})
    page = session_page(explanation(WHOLE, [READY, committed(), done]), NO_RUNS)
    (step,) = page.steps
    assert (step.step, step.version, step.tokens, step.place) == (1, 1, 3, "control:0:1")
    assert step.figures == {"clip_fraction": 0.25}


def test_a_page_says_what_is_not_kept_and_which_setting_keeps_it() -> None:
    without = session_page(explanation(WHOLE, [READY, committed()]), NO_RUNS).notices
    runs = {STEP: [rows_of(0, 3, 4, 5)]}
    tokens = explanation(WHOLE, [READY, committed()], runs)
    with_file = session_page(tokens, TrainedRuns(runs)).notices
    assert any("trainer.trained_dir" in notice for notice in without)
    assert not any("trainer.trained_dir" in notice for notice in with_file)
    assert any("no setting keeps them by token" in notice for notice in with_file)


def test_an_open_session_has_a_page_and_says_that_it_is_open() -> None:
    page = session_page(explanation([OPENED, *ANSWERED]), NO_RUNS)
    assert (page.status, page.finalized_at_ms) == ("open", None)
    assert page.places == {"SessionOpened": "sessions:0:0"}


def test_a_session_without_a_turn_has_a_page() -> None:
    page = session_page(explanation([OPENED]), NO_RUNS)
    assert (page.tokens, page.outcome) == (0, "no token was sampled")
    assert len(page.overview.begins) == 0


def test_the_twin_of_a_page_is_json() -> None:
    page = as_json(session_page(explanation([OPENED, *ANSWERED, *HANDED_OVER, *ENDED]), NO_RUNS))
    assert page["session"] == "s"
    assert page["turns"][1]["stretches"][1]["versions"] == ["4"]
    assert page["reasons"][0]["kind"] == "prompt"
    assert page["overview"]["logprobs"][:3] == [None, None, -0.25]


def test_an_overview_has_at_most_as_many_parts_as_it_is_asked_for() -> None:
    tokens = explanation([OPENED, *ANSWERED, *HANDED_OVER, *ENDED])
    parts = overview(tokens, 3)
    assert parts.begins.tolist() == [0, 3, 6]
    assert parts.versions.tolist() == [0, 0, 4]
    assert finite(parts.logprobs) == [-0.25, -0.25, -0.25]


def test_each_kind_of_reason_is_on_its_page_of_the_documentation() -> None:
    rows = (ROOT / "docs" / "reasons.md").read_text().splitlines()
    named = {row.split("`")[1] for row in rows if row.startswith("| `")}
    assert set(TokenReason) == named == set(MEANINGS)
