from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from seamlessflow.recorded.audit.verify import Deviation, Verification
from seamlessflow.reports.outcome import RunOutcome
from seamlessflow.reports.outcome_view import outcome_view, time_in_words
from seamlessflow.reports.summary import LauncherFacts, summary

CLEAN = Verification(tokens_checked=12_345, mismatches=0, trained_twice=0)
TOLD: dict[str, Any] = {
    "reward_first10": 0.1,
    "reward_last10": 0.95,
    "eval_before": 0.06,
    "eval_after": 0.99,
    "steps": 120,
    "trajectories": 7680,
    "turns": 15026,
    "ended_at": {"context": 0.02, "time": 0.1},
    "tokens_sampled": 68559,
    "tokens_trained": 12345,
    "tokens_masked": {"inexact_json_schema": 2345, "cut": 7},
    "role_switches": 232,
    "max_staleness": 1,
    "interrupted_turns_continued": 718,
    "train_wall_s": 120.4,
    "idle_share": {"w0": 0.25},
    "device_time": {"decoding": 0.5, "training": 0.25, "loading": 0.0, "under_filled": 0.25},
    "step_s": 1.004,
    "ideal_step_s": {"work": 0.75, "latency": 0.5},
    "restarts": {"gateway": 1, "trainer-w1": 2},
}


def shown(outcome: RunOutcome) -> str:
    console = Console(width=200, file=StringIO())
    with console.capture() as captured:
        console.print(outcome_view(outcome))
    return captured.get()


def test_what_came_of_a_run_and_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "reward.png").touch()
    said = shown(RunOutcome(tmp_path, TOLD, CLEAN))
    for part in (
        "0.100 → 0.950",
        "0.060 → 0.990",
        "120 steps in 120 s, 7,680 sessions, 15,026 turns, 12,345 of 68,559 sampled tokens",
        "2,345 inexact_json_schema, 7 cut (sampled tokens)",
        "w0 25% idle",
        "decoding 50.0%, training 25.0%, under-filled 25.0%",
        "1.00 s; no shorter than 0.75 s by work and 0.50 s by latency",
        "context 2.0%, time 10.0%",
        "gateway 1, trainer-w1 2 (by this command)",
        "at most 1 optimizer step",
        "232 changes of role, 718 turns continued",
        "12,345 trained tokens held against the log: 0 mismatches, 0 trained twice",
        "reward.png",
    ):
        assert part in said
    assert "timeline.png" not in said


def test_one_of_a_thing_is_no_plural(tmp_path: Path) -> None:
    once = {"steps": 1, "trajectories": 1, "turns": 1, "role_switches": 1}
    said = shown(RunOutcome(tmp_path, {**TOLD, **once, "interrupted_turns_continued": 1}, CLEAN))
    assert "1 step in 120 s, 1 session, 1 turn, " in said
    assert "1 change of role, 1 turn continued" in said


def test_a_sentence_says_how_near_the_shortest_step_was_who_idled_and_why(tmp_path: Path) -> None:
    spent = {
        "decoding": 0.5,
        "training": 0.3,
        "waiting": 0.124,
        "loading": 0.072,
        "switching": 0.004,
    }
    figures = {**TOLD, "idle_share": {"w0": 0.25, "w1": 0.15}, "device_time": spent}
    sentence = (
        "A step took 1 s, and 0.75 s is the shortest possible (its work alone); "
        "idle was w0 25%, w1 15%, with waiting 12.4%, loading weights 7.2%."
    )
    assert time_in_words(figures) == sentence
    assert sentence in shown(RunOutcome(tmp_path, figures, CLEAN))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"ideal_step_s": {"work": 0.2, "latency": 0.9}},
            "0.9 s is the shortest possible (its groups take so long)",
        ),
        ({"idle_share": {"w0": 0.0}, "device_time": {"training": 1.0}}, "; idle was w0 0%."),
        ({"step_s": None, "ideal_step_s": {}}, ""),
    ],
)
def test_the_sentence_names_the_limit_and_nothing_that_was_not(
    changes: dict[str, Any], words: str
) -> None:
    sentence = time_in_words({**TOLD, **changes})
    assert words in sentence
    assert bool(sentence) == bool(words)


def test_the_log_is_shown_by_a_command_with_the_directory(tmp_path: Path) -> None:
    out = tmp_path / "of two words"
    (out / "kafka").mkdir(parents=True)
    said = shown(RunOutcome(out, TOLD, CLEAN)).replace("\n", "")
    assert f"--out '{out}'" in " ".join(said.split())


def test_the_last_weights_are_named_wherever_they_lie(tmp_path: Path) -> None:
    final = tmp_path / "elsewhere" / "final"
    final.mkdir(parents=True)
    assert "elsewhere/final" in shown(RunOutcome(tmp_path / "out", TOLD, CLEAN, weights=(final,)))


def test_tokens_that_are_trained_again_by_plan_are_told_apart(tmp_path: Path) -> None:
    said = shown(RunOutcome(tmp_path, {**TOLD, "tokens_reused": 2345}, CLEAN))
    assert "10,000 of 68,559 sampled tokens, and 2,345 again by plan" in said


def test_what_stands_out_is_told_behind_the_figures(tmp_path: Path) -> None:
    said = shown(RunOutcome(tmp_path, {**TOLD, "symptoms": ["60% of the groups: x"]}, CLEAN))
    assert "to look at, in the last 20 steps:" in said
    assert "60% of the groups: x" in said
    assert "to look at" not in shown(RunOutcome(tmp_path, TOLD, CLEAN))


def test_named_rewards_have_a_row_where_there_are_several(tmp_path: Path) -> None:
    named = {"test": {"first10": 0.1, "last10": 0.5}, "style": {"last10": 0.25}}
    said = shown(RunOutcome(tmp_path, {**TOLD, "rewards": named}, CLEAN))
    assert "test 0.100 → 0.500, style ? → 0.250" in said
    assert "by name" not in shown(RunOutcome(tmp_path, TOLD, CLEAN))


def test_a_run_that_trained_no_token_has_failed(tmp_path: Path) -> None:
    nothing = RunOutcome(tmp_path, {**TOLD, "tokens_trained": 0}, CLEAN)
    assert "no token was trained" in shown(nothing)
    assert nothing.failed
    assert not RunOutcome(tmp_path, TOLD, CLEAN).failed


def test_what_is_wrong_is_told_in_detail(tmp_path: Path) -> None:
    wrong = Verification(
        tokens_checked=2,
        mismatches=1,
        trained_twice=0,
        steps_missing=(3,),
        wrong_marks=("step 1 marks group g wrongly",),
        deviations=(Deviation(1, "s", "t", 0, "another id"),),
    )
    said = shown(RunOutcome(tmp_path, TOLD, wrong, ("half of the groups had equal rewards",)))
    assert "1 mismatch, " in said
    assert "no record of steps 4, step 1 marks group g wrongly" in said
    assert "step 2, session s, turn t, token 0: another id" in said
    assert "! half of the groups had equal rewards" in said


def test_a_run_that_came_to_nothing_can_be_shown(tmp_path: Path) -> None:
    figures = summary([], {}, LauncherFacts(), None)
    assert "0 steps in ? s" in shown(RunOutcome(tmp_path, figures, CLEAN))


def test_each_of_several_policies_has_a_row(tmp_path: Path) -> None:
    figures = {"steps": 60, "step_s": 2.0, "tokens_trained": 6_000}
    figures |= {"reward_first10": 0.2, "reward_last10": 0.4}
    said = shown(RunOutcome(tmp_path, {**TOLD, "policies": {"coder": figures}}, CLEAN))
    assert "coder  60 steps, one in 2.00 s, 6,000 tokens trained, reward 0.200 → 0.400" in said
    assert "0.100 → 0.950" not in said, "no reward without its policy"


def test_a_short_run_and_its_sessions_that_were_not_trained(tmp_path: Path) -> None:
    kind = {"sessions": 8, "tokens": {"p10": 1.0, "p50": 2.0, "p90": 3.0}}
    lengths = {"begun": kind, "trained": kind, "not_trained": {"pruned": 2}}
    figures = TOLD | {"steps": 1, "lengths": lengths, "symptoms": ["60% of the groups: x"]}
    said = shown(RunOutcome(tmp_path, figures, CLEAN))
    assert "1 step in 120 s" in said
    assert "(p10, p50, p90); not trained: 2 pruned" in said
    assert "to look at, in the last step:" in said


def test_the_phases_of_a_step_are_a_row_with_the_tokens_a_second(tmp_path: Path) -> None:
    phases = {"batch_s": 1.5, "annotate_s": 0.001, "update_s": 0.5}
    said = shown(RunOutcome(tmp_path, TOLD | {"phases": phases, "tokens_per_s": 1234.5}, CLEAN))
    assert "time of a step  batch 1.50 s, update 0.50 s; 1,234 trained tokens a second" in said
    assert "time of a step" not in shown(RunOutcome(tmp_path, TOLD, CLEAN))


def test_a_long_directory_hides_no_file(tmp_path: Path) -> None:
    out = tmp_path / ("long" * 50)
    out.mkdir()
    for name in ("reward.png", "timeline.png"):
        (out / name).touch()
    said = "".join(shown(RunOutcome(out, TOLD, CLEAN)).split())
    for name in ("reward.png", "timeline.png"):
        assert f"{out.name[-40:]}/{name}" in said
