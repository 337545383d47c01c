"""Each token has one reason, and the record on the log that says so."""

from typing import Any

import pytest

from seamlessflow.console.views.session.reason import TokenReason as Why
from seamlessflow.console.views.session.reasons import SessionSources, explained
from seamlessflow.schemas import records as r
from tests.builders.console.explained_sessions import (
    ANSWERED,
    ENDED,
    OPENED,
    READY,
    SESSION,
    STEP,
    WHOLE,
    committed,
    explanation,
    finite,
    kinds,
    lineage,
    method,
    row_of,
    rows_of,
    trajectory_of,
)
from tests.builders.records import control, sessions
from tests.builders.records.content import ids
from tests.builders.trajectories.conversation import recorded_prefix

PROMPT = [Why.PROMPT] * 2
ANSWER = 2
"""Place of the answer's first token."""


def test_tokens_in_the_file_of_a_step_are_trained_with_their_advantage() -> None:
    runs = {STEP: [rows_of(0, 3, 4, 5, advantage=[0.5, 0.25, -1.0])]}
    tokens = explanation(WHOLE, [READY, committed(methods=(method("loss", "ppo_clip"),))], runs)
    row = row_of(tokens, ANSWER)
    assert kinds(tokens) == [*PROMPT, *[Why.TRAINED] * 3]
    assert (row.words, row.rule) == ("trained in step 1, which made version 1", "ppo_clip")
    assert (row.place, row.record) == ("control:0:1", "StepCommitted")
    assert finite(tokens.advantages_T) == [None, None, 0.5, 0.25, -1.0]


def test_a_prompt_is_shown_by_the_event_that_began_its_turn() -> None:
    row = row_of(explanation(), 0)
    assert (row.kind, row.place, row.record) == (Why.PROMPT, "sessions:0:1", "TurnStarted")


def test_a_tools_result_and_an_intervention_are_no_plain_prompts() -> None:
    tool = sessions.started("a", suffix_origin="tool")
    between = sessions.started("a", intervened=True)
    assert kinds(explanation([OPENED, tool]))[0] is Why.TOOL_RESULT
    assert kinds(explanation([OPENED, between]))[0] is Why.INTERVENTION


def test_without_its_file_a_step_that_trained_all_fresh_tokens_leaves_no_doubt() -> None:
    tokens = explanation(WHOLE, [READY, committed(3)])
    assert kinds(tokens)[ANSWER:] == [Why.TRAINED] * 3
    assert finite(tokens.advantages_T) == [None] * 5


def test_without_its_file_a_step_that_trained_some_tokens_does_not_say_which_ones() -> None:
    tokens = explanation(WHOLE, [READY, committed(2)])
    assert kinds(tokens)[ANSWER:] == [Why.UNKNOWN] * 3
    assert "trained 2 tokens of the session" in row_of(tokens, ANSWER).words


def test_a_token_that_a_row_gives_another_id_is_none_of_the_session() -> None:
    tokens = explanation(WHOLE, [READY, committed(1)], {STEP: [rows_of(0, 99)]})
    assert tokens.strangers == 1
    assert Why.TRAINED not in kinds(tokens)


def test_two_steps_that_train_a_token_by_plan_are_both_named() -> None:
    again = committed(version=2, step=1, of_group={"reused": 1})
    runs = {STEP: [rows_of(0, 3, 4)], ("", 2, "a"): [rows_of(1, 4, 5, advantage=2.0)]}
    tokens = explanation(WHOLE, [READY, committed(2), again], runs)
    words = [row_of(tokens, place).words for place in (2, 3, 4)]
    assert words == [
        "trained in step 1, which made version 1",
        "trained in step 1, which made version 1; trained in step 2, which made version 2",
        "trained in step 2, which made version 2",
    ]
    assert finite(tokens.advantages_T)[ANSWER:] == [1.0, 2.0, 2.0]


def test_a_step_of_a_lost_lineage_did_not_train_a_token_that_counts() -> None:
    lost = committed(3)
    newer = control.committed(0, ["other"], version=2, lineage="b")
    tokens = explanation(WHOLE, [READY, lost, newer], {STEP: [rows_of(0, 3, 4, 5)]})
    row = row_of(tokens, ANSWER)
    assert (row.kind, row.place) == (Why.LOST_STEP, "control:0:1")


MASKED = [
    ("prompt_mismatch", {"prompt_hash": b"x" * 16}, {}, "TurnCompleted"),
    ("inexact_json_schema", {}, {"behavior_exact": False, "inexact_reason": "json_schema"}, ""),
    ("frozen", {}, {"frozen": True}, "TurnStarted"),
]


@pytest.mark.parametrize(("rule", "ends", "begins", "record"), MASKED)
def test_a_masked_turn_names_its_rule_and_the_event_that_shows_it(
    rule: str, ends: dict[str, Any], begins: dict[str, Any], record: str
) -> None:
    turn = (
        sessions.started("a", **begins),
        sessions.dispatched("a"),
        sessions.completed(ids(3, 4, 5), "a", **ends),
    )
    row = row_of(explanation([OPENED, *turn, *ENDED]), ANSWER)
    assert (row.kind, row.rule) == (Why.MASKED, rule)
    assert row.record == (record or "TurnStarted")
    assert row.setting


def test_an_abandoned_answer_is_shown_by_the_turn_that_went_on_from_another() -> None:
    """Turn `b` samples the prompt again, and turn `c` goes on from it."""
    again = sessions.started("b", b"", parent_node=0, parent_end=2, match_rule="same")
    onward = sessions.started("c", ids(9), parent_node=3, parent_end=1)
    events = (
        *(OPENED, *ANSWERED, again, sessions.dispatched("b")),
        sessions.completed(ids(6), "b", b""),
        *(onward, sessions.dispatched("c"), sessions.completed(ids(7), "c", ids(9)), *ENDED),
    )
    row = row_of(explanation(events), ANSWER)
    assert (row.rule, row.record, row.place) == ("abandoned", "TurnStarted", "sessions:0:7")


def test_a_cut_turn_is_shown_by_the_end_of_its_session() -> None:
    begun = (sessions.started("a"), sessions.dispatched("a"), sessions.progressed(ids(3), "a"))
    row = row_of(explanation([OPENED, *begun, *ENDED]), ANSWER)
    assert (row.rule, row.record) == ("cut", "SessionClosed")


def test_a_turn_that_is_being_sampled_is_under_way() -> None:
    begun = (sessions.started("a"), sessions.dispatched("a"), sessions.progressed(ids(3), "a"))
    row = row_of(explanation([OPENED, *begun]), ANSWER)
    assert (row.kind, row.words) == (Why.UNDER_WAY, "its turn is being sampled")


def test_tokens_between_two_versions_are_masked_by_the_event_that_brought_them() -> None:
    span = r.VersionSpan(start=1, version_min=0, version_max=1)
    turn = (
        sessions.started("a"),
        sessions.dispatched("a"),
        sessions.progressed(ids(3), "a"),
        sessions.completed(ids(4, 5), "a", token_offset=1, spans=(span,)),
    )
    tokens = explanation([OPENED, *turn, *ENDED], [READY, committed(1)])
    assert kinds(tokens)[ANSWER:] == [Why.TRAINED, Why.MASKED, Why.MASKED]
    row = row_of(tokens, ANSWER + 1)
    assert (row.rule, row.place) == ("inexact_version", "sessions:0:4")


def test_a_trajectory_that_fits_into_no_record_masks_all_that_was_sampled() -> None:
    large = trajectory_of(
        WHOLE, tokens=b"", logprobs=b"", loss_mask=b"", nodes=(), spans=(), reason="too_large: 9",
        masked_tokens={"too_large": 3},
    )  # fmt: skip
    tokens = explanation(WHOLE, [], trajectory=large)
    assert kinds(tokens) == [*PROMPT, *[Why.MASKED] * 3]
    assert row_of(tokens, ANSWER).place == "trajectories:0:0"


def test_an_open_session_and_a_ready_group_wait() -> None:
    open_row = row_of(explanation([OPENED, *ANSWERED]), ANSWER)
    ready_row = row_of(explanation(WHOLE, [READY]), ANSWER)
    assert (open_row.kind, open_row.words) == (Why.UNDER_WAY, "its session is open")
    assert (ready_row.kind, ready_row.record) == (Why.NOT_IN_STEP, "GroupReady")


def test_a_batch_that_is_not_committed_is_named() -> None:
    row = row_of(explanation(WHOLE, [READY, control.batch_ready(4, groups=("g",))]), ANSWER)
    assert row.words == "in the batch of step 5, which is not committed"


def test_a_session_that_came_too_late_for_its_group_is_in_no_step() -> None:
    row = row_of(explanation(WHOLE, [control.ready("g", sessions=("other",))]), ANSWER)
    assert row.words == "its group was ready without it"


def test_a_run_that_ended_before_a_step_took_the_group_says_so() -> None:
    row = row_of(explanation(WHOLE, [READY, control.finished()]), ANSWER)
    assert (row.words, row.record) == ("the run ended before a step took it", "RunFinished")


DROPPED = [
    ("filtered", "zero_variance", Why.GROUP_FILTERED, "zero_variance"),
    ("stale", "3 of 3 tokens are older than 1 steps", Why.STALE, "stale"),
    ("expired", "1 sessions at the deadline", Why.GROUP_DROPPED, "expired"),
]


@pytest.mark.parametrize(("reason", "detail", "kind", "rule"), DROPPED)
def test_a_dropped_group_says_by_what(reason: str, detail: str, kind: Why, rule: str) -> None:
    dropped = control.dropped("g", reason, detail=detail)
    row = row_of(explanation(WHOLE, [READY, dropped]), ANSWER)
    assert (row.kind, row.rule, row.place) == (kind, rule, "control:0:1")
    assert detail in row.words


def test_a_session_whose_judge_failed_does_not_count() -> None:
    failed = control.sample_failed("g", 0, 0, cause="judge", detail="judge j: no answer")
    dropped = control.dropped("g", "judge_failed", detail="judge j: no answer")
    mine = row_of(explanation(WHOLE, [failed, dropped]), ANSWER)
    other = row_of(explanation(WHOLE, [control.sample_failed("g", 1, 0), dropped]), ANSWER)
    assert (mine.kind, mine.rule) == (Why.SESSION_FAILED, "judge")
    assert mine.words == "its session does not count (judge): judge j: no answer"
    assert (other.kind, other.rule) == (Why.GROUP_DROPPED, "judge_failed")


def test_a_filter_that_counts_keeps_a_group_in_its_step_and_out_of_the_loss() -> None:
    commit = committed(None, of_group={"filtered": "zero_variance"})
    row = row_of(explanation(WHOLE, [READY, commit], {STEP: []}), ANSWER)
    assert (row.kind, row.rule, row.record) == (
        Why.GROUP_FILTERED,
        "zero_variance",
        "StepCommitted",
    )


def test_a_loss_with_terms_of_each_token_trains_a_filtered_group_without_an_advantage() -> None:
    commit = committed(of_group={"filtered": "zero_variance"})
    runs = {STEP: [rows_of(0, 3, 4, 5, advantage=0.0)]}
    row = row_of(explanation(WHOLE, [READY, commit], runs), ANSWER)
    assert row.kind is Why.TRAINED
    assert "the filter zero_variance left it the loss's terms of each token alone" in row.words


def two_versions(limit: int | None, on_stale: str = "mask") -> list[r.Record]:
    """A session of versions 0 and 2, in step 3; versions n are made by n steps."""
    published = [control.published(number) for number in range(4)]
    commit = committed(1, step=3, version=4, methods=(method("staleness", on_stale),))
    return [lineage({"max_staleness": limit}), *published, READY, commit]


def over_versions() -> tuple[r.Record, ...]:
    newer = r.VersionSpan(start=1, version_min=2, version_max=2)
    turn = (
        sessions.started("a"),
        sessions.dispatched("a"),
        sessions.progressed(ids(3), "a"),
        sessions.completed(ids(4, 5), "a", token_offset=1, spans=(newer,)),
    )
    return (OPENED, *turn, *ENDED)


def test_tokens_older_than_the_step_allows_are_stale() -> None:
    runs = {("", 4, "a"): [rows_of(1, 4, 5)]}
    tokens = explanation(over_versions(), two_versions(2), runs)
    assert kinds(tokens)[ANSWER:] == [Why.STALE, Why.TRAINED, Why.TRAINED]
    assert row_of(tokens, ANSWER).words == "more than 2 optimizer steps old in step 4"


def test_the_runs_lag_is_the_limit_where_no_other_is_set() -> None:
    tokens = explanation(over_versions(), two_versions(None), {("", 4, "a"): [rows_of(1, 4, 5)]})
    assert row_of(tokens, ANSWER).words == "more than 1 optimizer steps old in step 4"


def test_corrected_tokens_are_never_stale() -> None:
    tokens = explanation(over_versions(), two_versions(2, "correct"), {("", 4, "a"): []})
    assert Why.STALE not in kinds(tokens)


LEFT_OUT = [("selection", "extremes", "unselected"), ("pairs", "all", "unpaired")]


@pytest.mark.parametrize(("kind", "name", "rule"), LEFT_OUT)
def test_a_step_that_trained_other_sessions_of_the_group_says_by_which_choice(
    kind: str, name: str, rule: str
) -> None:
    commit = committed(None, methods=(method(kind, name),))
    row = row_of(explanation(WHOLE, [READY, commit], {STEP: []}), ANSWER)
    assert (row.kind, row.rule) == (Why.LEFT_OUT, rule)


def test_a_session_at_a_limit_that_the_settings_mask_is_left_out() -> None:
    events = (OPENED, *ANSWERED, sessions.rewarded(0.5), sessions.closed(limit="context"),
              sessions.finalized())  # fmt: skip
    settings = lineage({"max_staleness": 1, "overlong": {"masked": ["context"]}})
    row = row_of(explanation(events, [settings, READY, committed(None)], {STEP: []}), ANSWER)
    assert (row.kind, row.rule) == (Why.LEFT_OUT, "overlong")


def test_a_stored_session_in_its_place_is_named() -> None:
    replaced = (r.ReplacedSession(session_id=SESSION, by="old", pool="best"),)
    commit = committed(None, of_group={"replaced": replaced})
    row = row_of(explanation(WHOLE, [READY, commit], {STEP: []}), ANSWER)
    assert (row.kind, row.rule) == (Why.LEFT_OUT, "replaced")
    assert "session old of the pool best took its place" in row.words


def test_a_mask_of_the_trainer_is_named_for_tokens_that_left_the_loss() -> None:
    commit = committed(1, methods=(method("mask", "high_entropy_turns"),))
    tokens = explanation(WHOLE, [READY, commit], {STEP: [rows_of(0, 3)]})
    assert kinds(tokens)[ANSWER:] == [Why.TRAINED, Why.MASKED, Why.MASKED]
    assert row_of(tokens, 4).rule == "high_entropy_turns"


def test_a_token_that_no_record_explains_is_not_given_a_reason() -> None:
    row = row_of(explanation(WHOLE, [READY, committed(None)], {STEP: []}), ANSWER)
    assert row.kind is Why.UNKNOWN
    assert "no record says which rule" in row.words


def test_records_of_another_policys_trainer_do_not_count() -> None:
    other = control.dropped("g", "expired", policy="q")
    assert row_of(explanation(WHOLE, [READY, other]), ANSWER).kind is Why.NOT_IN_STEP


def test_the_sums_of_reasons_are_all_tokens() -> None:
    tokens = explanation(over_versions(), two_versions(2), {("", 4, "a"): [rows_of(1, 4, 5)]})
    assert sum(row.tokens for row in tokens.rows) == len(tokens.columns)
    assert tokens.tokens_by_kind() == {Why.PROMPT: 2, Why.STALE: 1, Why.TRAINED: 2}


def test_each_policy_of_a_session_has_a_trainer_of_its_own() -> None:
    """Turn `a` is of the policy p, turn `b` of q, whose trainer dropped the group."""
    second = (
        sessions.started("b", ids(7), parent_node=1, parent_end=3, policy="q"),
        sessions.dispatched("b"),
        sessions.completed(ids(8), "b", ids(7)),
    )
    of_control = [committed(3, policy="p"), control.dropped("g", "expired", policy="q")]
    tokens = explanation([OPENED, *ANSWERED, *second, *ENDED], of_control)
    assert kinds(tokens)[ANSWER:] == [*[Why.TRAINED] * 3, Why.PROMPT, Why.GROUP_DROPPED]


def test_a_session_of_a_recording_is_explained_without_events() -> None:
    tokens = explanation((), [READY, committed(3)], trajectory=trajectory_of(WHOLE))
    assert kinds(tokens) == [*PROMPT, *[Why.TRAINED] * 3]
    assert row_of(tokens, 0).place == "trajectories:0:0"


def test_a_session_that_a_manager_gave_up_still_shows_its_tokens() -> None:
    given_up = sessions.closed(command_id=None, reason="manager_failed", cause="infrastructure")
    tokens = explanation([OPENED, *ANSWERED, given_up, sessions.finalized()])
    assert len(tokens.columns) == 5
    assert kinds(tokens)[ANSWER:] == [Why.SESSION_FAILED] * 3


def test_an_evaluation_is_masked_by_the_purpose_that_it_was_opened_with() -> None:
    tokens = explanation([sessions.opened(group_id="g", purpose="eval"), *ANSWERED, *ENDED])
    row = row_of(tokens, ANSWER)
    assert (row.kind, row.rule, row.record) == (Why.MASKED, "eval", "SessionOpened")


def test_another_rule_for_tokens_of_an_evaluation_says_that_none_of_them_is_trained() -> None:
    greedy = sessions.started("a", behavior_exact=False, inexact_reason="greedy")
    turn = (greedy, sessions.dispatched("a"), sessions.completed(ids(3, 4, 5), "a"))
    opened = sessions.opened(group_id="g", purpose="eval")
    row = row_of(explanation([opened, *turn, *ENDED]), ANSWER)
    assert row.rule == "inexact_greedy"
    assert row.words.endswith("and no session of the purpose eval is trained")


def test_nothing_of_a_session_that_is_not_on_the_log_is_explained() -> None:
    assert explained(SessionSources(session_id="nowhere")) is None


def test_a_copied_beginning_is_shown_by_the_opening_of_its_fork() -> None:
    fork = sessions.opened(group_id="g", fork=recorded_prefix("c"))
    tokens = explanation([fork])
    assert set(kinds(tokens)) == {Why.FORKED}
    assert {row.record for row in tokens.rows} == {"SessionOpened"}
