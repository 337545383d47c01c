from io import StringIO
from typing import Any

from rich.console import Console, RenderableType

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.watching.display import LiveDisplay, PlainDisplay, headline, panel, sparkline
from seamlessflow.watching.progress import RunProgress
from tests.builders.records import control, fleet

SINCE = 1_000_000


def progress(*records: Record, total: int = 20) -> RunProgress:
    made = RunProgress("p", total, since_ms=SINCE)
    for record in records:
        made.apply(record)
    return made


def step(number: int, reward: float = 0.5, at_ms: int = SINCE, **metrics: float) -> r.StepCompleted:
    return control.completed(number, at_ms=at_ms, metrics={"reward_mean": reward, **metrics})


def acquired(worker: str, role: str, **changes: Any) -> r.RoleAcquired:
    return control.acquired(worker, role, 1, **{"at_ms": SINCE, "version": 3, **changes})


def assigned(worker: str, role: str) -> r.RoleAssigned:
    return control.assigned(worker, role, 2, at_ms=SINCE, reason="a batch is ready")


def weights(version: int, policy: str = "p") -> r.PolicyWeights:
    return fleet.weights(policy=policy, version=version, step=version)


def group(name: str, at_ms: int = SINCE, purpose: str = "train") -> r.GroupAdmitted:
    return control.admitted(name, at_ms=at_ms, purpose=purpose)


def text_of(shown: RenderableType) -> str:
    console = Console(width=120, file=StringIO())
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


def test_who_rolls_out_with_which_version() -> None:
    seen = progress(acquired("w0", "rollout"), acquired("w1", "rollout"), assigned("w1", "train"))
    assert seen.serving == {"w0": 3}
    assert seen.doing == {"w0": "rollout", "w1": "→ train"}
    loaded = control.loaded(4, at_ms=SINCE, worker="w0")
    seen.apply(loaded)
    assert seen.serving == {"w0": 4}


def test_a_worker_that_was_lost_or_ended_is_not_shown() -> None:
    seen = progress(
        *(control.joined(name, incarnation=name, at_ms=SINCE) for name in ("w0", "w1", "w2")),
        acquired("w0", "rollout", incarnation="w0"),
        acquired("w1", "rollout", incarnation="w1"),
        control.assigned("w2", "rollout", 2, incarnation="w2", at_ms=SINCE),
        control.usage("w1", at_ms=SINCE, from_ms=SINCE - 1_000, decoding_ms=1_000),
        *(
            control.lost(name, incarnation=name, reason=reason, at_ms=SINCE)
            for name, reason in (("w1", "ended"), ("w2", "failed"))
        ),
    )
    assert seen.doing == {"w0": "rollout"}
    assert seen.serving == {"w0": 3}
    assert seen.useful == {}
    assert "rollout of w2 lost: failed" in text_of(panel(seen, "run", ""))


def test_a_worker_that_lost_the_process_without_its_role_is_still_shown() -> None:
    seen = progress(
        control.joined("w0", incarnation="train", process="train", at_ms=SINCE),
        acquired("w0", "rollout", incarnation="rollout"),
        control.lost("w0", process="train", incarnation="train", at_ms=SINCE),
    )
    assert (seen.doing, seen.serving) == ({"w0": "rollout"}, {"w0": 3})


def test_a_step_is_trained_and_then_waited_for() -> None:
    started = control.started(["w1"], 4, at_ms=SINCE)
    seen = progress(acquired("w1", "train"), started)
    assert seen.doing == {"w1": "training step 5"}
    seen.apply(step(4))
    assert seen.doing == {"w1": "waiting"}
    assert seen.done == 1


def test_roles_of_an_earlier_start_do_not_count_but_its_steps_do() -> None:
    seen = progress(acquired("w0", "rollout", at_ms=SINCE - 1), step(0, at_ms=SINCE - 1))
    assert seen.serving == {}
    assert seen.done == 1


def test_the_version_is_the_policys_own() -> None:
    assert progress(weights(3), weights(9, policy="other")).version == 3


def test_a_step_made_again_counts_once_with_its_last_reward() -> None:
    assert progress(step(0, 0.1), step(1, 0.2), step(1, 0.4)).rewards() == [0.1, 0.4]


def test_the_trend_compares_ten_steps_with_the_ten_before() -> None:
    seen = progress(*(step(number, reward=float(number >= 10)) for number in range(20)))
    assert (seen.recent_reward(), seen.recent_reward(10)) == (1.0, 0.0)


def test_the_time_left_without_groups_to_admit_follows_the_pace_since_the_first_step() -> None:
    seen = progress(control.started(["w"], at_ms=SINCE), step(0, at_ms=SINCE + 2_000))
    assert seen.seconds_left() == 2 * (seen.total - 1)


def test_the_time_left_follows_the_pace_of_the_last_steps() -> None:
    seen = progress(group("a"))
    assert seen.seconds_left() is None
    for number in range(5):
        seen.apply(step(number, at_ms=SINCE + 2_000 * (number + 1)))
    assert seen.seconds_left() == 30


def test_groups_come_and_go() -> None:
    ready = control.ready("a", at_ms=SINCE)
    seen = progress(group("a"), group("b"), group("e", purpose="eval"), ready)
    assert (seen.running_groups, seen.ready_groups) == ({"b"}, {"a"})
    seen.apply(control.consumed("a", at_ms=SINCE))
    seen.apply(control.dropped("b", "expired", at_ms=SINCE))
    assert (seen.running_groups, seen.ready_groups) == (set(), set())


def test_explorations_are_counted_apart_until_they_are_ready() -> None:
    seen = progress(*(group(name, purpose="explore") for name in "abc"))
    seen.apply(control.ready("a", at_ms=SINCE))
    seen.apply(control.dropped("b", "failed", at_ms=SINCE))
    assert (seen.exploring, seen.running_groups, seen.ready_groups) == ({"c"}, set(), set())


def test_the_speed_is_that_of_the_last_ten_seconds() -> None:
    seen = progress(*(usage(SINCE + 1_000 * number) for number in range(30)))
    assert seen.tokens_per_s() == 100


def test_a_report_that_arrives_after_the_ten_seconds_counts_nothing() -> None:
    seen = progress(control.loaded(4, at_ms=SINCE + 60_000), usage(SINCE + 1_000))
    assert seen.tokens_per_s() == 0


def test_the_speed_of_longer_steps_is_that_of_the_last_two() -> None:
    began = SINCE + 60_000
    early = (usage(SINCE + 1_000 * number) for number in range(30))
    first = (group("a", at_ms=began), usage(began + 2_000), step(0, at_ms=began + 20_000))
    second = (usage(began + 22_000), usage(began + 23_000), step(1, at_ms=began + 40_000))
    assert progress(*early, *first, *second).tokens_per_s() == 7.5

    third = (usage(began + 45_000), step(2, at_ms=began + 60_000))
    assert progress(*early, *first, *second, *third).tokens_per_s() == 7.5


def usage(at_ms: int) -> r.WorkerUsage:
    return control.usage("w0", at_ms=at_ms, from_ms=at_ms - 1_000, tokens=100)


def test_a_run_is_finished_when_the_trainer_says_so() -> None:
    finished = control.finished(20, at_ms=SINCE)
    assert progress(finished, total=20).is_finished
    assert not progress(finished, total=21).is_finished


def test_what_goes_wrong_is_noticed() -> None:
    stalled = r.ProgressStalled(at_ms=SINCE, what="learning", detail="equal rewards", since_ms=0)
    lost = control.lost("w0", at_ms=SINCE, reason="silent")
    joined = control.joined("w0", at_ms=SINCE)
    ended = control.lost("w0", at_ms=SINCE, reason="ended")
    seen = progress(stalled, joined, lost, ended)
    assert list(seen.notices) == ["learning: equal rewards", "rollout of w0 lost: silent"]
    shown = text_of(panel(seen, "demo", "training"))
    assert "rollout of w0 lost" in shown


def test_a_method_that_fails_is_noticed_once_with_its_error() -> None:
    fields = {"at_ms": SINCE, "detail": "advantage estimator own failed: ValueError"}
    failed = [control.dropped(group, "method_failed", **fields) for group in "ab"]
    seen = progress(*failed, control.dropped("c", "stale", **fields))
    assert list(seen.notices) == ["groups dropped: advantage estimator own failed: ValueError"]


def test_processes_of_an_earlier_start_are_not_missed() -> None:
    lost = control.lost("w0", at_ms=SINCE, incarnation="old")
    seen = progress(acquired("w0", "rollout"), lost)
    assert list(seen.notices) == []
    assert seen.serving == {"w0": 3}


def test_a_worker_is_placed_once_it_has_taken_either_role() -> None:
    seen = progress(
        acquired("w0", "train"),
        acquired("w1", "rollout"),
        assigned("w1", "train"),
        assigned("w2", "rollout"),
    )
    assert seen.placed == {"w0", "w1"}
    assert seen.serving == {}


def test_the_panel_tells_everything_at_a_glance() -> None:
    seen = progress(
        group("a"),
        acquired("w0", "rollout"),
        *(step(number, number / 20, staleness_mean=0.5, staleness_max=1) for number in range(12)),
    )
    shown = text_of(panel(seen, "demo", "training"))
    used = control.usage("w0", decoding_ms=8, full_batch_ms=5, idle_ms=2, at_ms=SINCE)
    seen.apply(used)
    assert "w0 rollout (v3, 50% useful)" in text_of(panel(seen, "demo", "training"))
    for part in ("12 of 20", "0.325", "+0.300", "w0 rollout (v3)", "1 running", "the oldest 1"):
        assert part in shown
    assert "training" in shown


def test_the_shares_of_sessions_that_limits_ended_are_shown() -> None:
    steps = [
        control.completed(
            number, at_ms=SINCE, metrics={f"ended_at/{limit}": share, "sessions_ended": 4.0}
        )
        for number, (limit, share) in enumerate([("time", 0.5), ("context", 0.2)])
    ]
    seen = progress(*steps)
    assert seen.recent_limits() == {"context": 0.1, "time": 0.25}
    assert "context 10%, time 25%" in text_of(panel(seen, "demo", "training"))
    assert "ended at context 10%, time 25%" in headline(seen)


def test_steps_before_which_no_session_ended_tell_nothing_of_limits() -> None:
    seen = progress(
        control.completed(0, at_ms=SINCE, metrics={"ended_at/time": 0.5, "sessions_ended": 4.0}),
        *(step(number) for number in range(1, 9)),
    )
    assert seen.recent_limits() == {"time": 0.5}
    ended = {"begun_tokens/mean": 7, "sessions_ended": 4.0}
    seen.apply(control.completed(9, at_ms=SINCE, metrics=ended))
    assert seen.recent_limits() == {"time": 0.25}


def test_agents_that_failed_after_a_limit_and_count_are_counted() -> None:
    assert progress(step(0)).common_failures() == []
    seen = progress(step(0, failed_at_limit=2), step(1), step(2, failed_at_limit=1))
    (line,) = seen.common_failures()
    assert line == "3 samples failed after a limit and count: agents.on_limit"
    assert line in text_of(panel(seen, "demo", "training"))


def test_before_the_first_step_there_is_something_to_show_too() -> None:
    assert "none yet" in text_of(panel(progress(), "demo", "starting"))
    assert headline(progress()).startswith("0 of 20 steps")


def test_without_a_terminal_every_step_is_a_line_every_tenth_another_and_every_notice_one() -> None:
    console = Console(width=200, file=StringIO())
    seen: Any = progress()
    with console.capture() as captured, PlainDisplay(console) as shown:
        shown.phase("training")
        for number in range(20):
            seen.apply(step(number))
            seen.notices.append("slow") if number == 3 else None
            shown.progress(seen)
    lines = captured.get().splitlines()
    steps = [f"step {number}/20" for number in range(1, 21)]
    assert [line.split(" · ")[0] for line in lines] == [
        "[   0 s] training",
        *steps[:3],
        "! slow",
        *steps[3:10],
        "10 of 20 steps",
        *steps[10:],
        "20 of 20 steps",
    ]


TRACEBACK = "Traceback (most recent call last):\n  agent.py, line 3\nValueError: no such table"


def failed(sample: int, detail: str = TRACEBACK, at_ms: int = SINCE) -> r.SampleFailed:
    return r.SampleFailed(
        at_ms=at_ms, group_id="a", sample=sample, attempt=0, cause="environment", detail=detail
    )


def test_a_failing_agent_is_shown_at_once_with_its_traceback_and_counted_at_the_end() -> None:
    console = Console(width=200, file=StringIO())
    with console.capture() as captured, PlainDisplay(console) as shown:
        shown.progress(progress(failed(0)))
        shown.progress(progress(failed(0), failed(1), failed(2, "out of time")))
    lines = captured.get().splitlines()
    assert lines == [
        *f"! sample 0 of group a failed: {TRACEBACK}".splitlines(),
        "! sample 2 of group a failed: out of time",
        "! 2 samples failed: ValueError: no such table",
        "! 1 samples failed: out of time",
    ]


def test_the_panel_counts_failed_samples_by_their_error() -> None:
    shown = text_of(panel(progress(failed(0), failed(1)), "demo", "training"))
    assert "2 samples failed: ValueError: no such table" in shown


def test_failures_for_further_reasons_are_counted_together() -> None:
    seen = progress(*(failed(number, f"error {'abcde'[number % 5]}") for number in range(12)))
    assert seen.common_failures() == [
        "3 samples failed: error a",
        "3 samples failed: error b",
        "2 samples failed: error c",
        "4 further samples failed: SampleFailed on control has the reasons",
    ]


def test_errors_that_differ_by_the_task_alone_are_one_kind() -> None:
    lacking = (f"LookupError: no task {number} (1850fd15c57{number})" for number in range(3))
    seen = progress(*(failed(0, detail) for detail in lacking))
    assert seen.common_failures() == ["3 samples failed: LookupError: no task 0 (1850fd15c570)"]


def test_an_evaluation_in_which_every_sample_failed_is_noticed() -> None:
    nothing = r.EvaluationCompleted(
        at_ms=SINCE, version=3, step=3, split="held_back", groups=6, sessions=0, reward_mean=None
    )
    text = "evaluation held_back of version 3 has no figure: none of its 6 groups has a reward"
    assert list(progress(nothing).notices) == [text]


def test_failures_of_an_earlier_start_are_not_shown() -> None:
    assert progress(failed(0, at_ms=SINCE - 1)).failures == {}


def test_a_sparkline_shows_rewards_between_nothing_and_one() -> None:
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([-1.0, 2.0]) == "▁█"


def test_on_a_terminal_a_panel_is_drawn_and_every_phase_ticked_off() -> None:
    console = Console(width=120, file=StringIO(), force_terminal=True)
    with console.capture() as captured, LiveDisplay(console, "demo") as shown:
        shown.phase("starting")
        shown.phase("training")
        shown.progress(progress(step(0)))
    said = captured.get()
    assert "✓" in said and "starting" in said
    assert "1 of 20" in said
    assert said.count("✓") == 2


def test_tokens_that_are_not_trained_are_shown_by_the_rule_that_masks_them() -> None:
    lost = {"masked/inexact_json_schema": 1_200.0, "masked/stale": 3.0}
    seen = progress(*(control.completed(number, metrics=lost) for number in range(2)))

    assert "2,400 inexact_json_schema, 6 stale" in text_of(panel(seen, "run", ""))
    assert "not trained: 2,400 inexact_json_schema, 6 stale tokens" in headline(seen)
    assert "trained" not in headline(progress(step(0)))


def test_groups_of_another_policys_role_are_not_shown_as_under_way() -> None:
    seen = progress(
        control.admitted("g-one", policy="p", role="one", at_ms=SINCE),
        control.admitted("g-two", policy="q", role="two", at_ms=SINCE),
    )
    assert seen.running_groups == {"g-one"}
