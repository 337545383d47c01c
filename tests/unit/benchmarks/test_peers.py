"""The benchmark `peers`: its tasks, the phases of its steps, its configurations and its table."""

import json
from dataclasses import asdict, replace
from os import getpid
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.conversations import Conversations, Rewards
from benchmarks.peers.ours import SIDES, merged, settings, step_ends, write_run
from benchmarks.peers.peers import kept
from benchmarks.peers.result import (
    GENERATION,
    LOGPROBS,
    REST,
    UPDATE,
    StepEnd,
    Usage,
    as_json,
    figures,
    measured_steps,
    table,
    usage_at,
)
from benchmarks.peers.runs import SideFailed
from benchmarks.peers.shape import SHAPES, WARM_UP, Shape, Sum, Work, last_number, work_of
from benchmarks.peers.usage import ProcessTree
from seamlessflow.config import RunConfig
from seamlessflow.schemas.records import StepCommitted, StepCompleted, StepGroup

WORK = Work("model", SHAPES["single"], steps=4, threads=2, lr=1e-6, seed=0, out="out")
TURNS = Work("model", SHAPES["turns"], steps=4, threads=2, lr=1e-6, seed=0, out="out")
TIMES = {"annotate_s": 1.0, "update_s": 4.0, "publish_s": 0.5, "commit_s": 0.1}


def used(at_s: float, cpu_s: float, machine_s: float, **peaks_mb: float) -> Usage:
    return Usage(at_s, cpu_s, machine_s, peaks_mb)


def end(at_s: float, **phases: float) -> StepEnd:
    return StepEnd(at_s, sampled=100, trained=80, phases=phases)


def test_tasks_follow_from_the_seed_alone() -> None:
    assert WORK.tasks() == WORK.tasks()
    assert WORK.tasks() != replace(WORK, seed=1).tasks()


def test_further_steps_change_no_earlier_task() -> None:
    assert TURNS.tasks(further_steps=2)[: len(TURNS.tasks())] == TURNS.tasks()


@pytest.mark.parametrize("work", [WORK, TURNS])
def test_each_task_has_a_question_of_its_own_and_as_many_as_the_shape_has_turns(work: Work) -> None:
    tasks = work.tasks()
    assert len(tasks) == work.shape.groups * (WARM_UP + work.steps)
    assert len({task.questions()[0] for task in tasks}) == len(tasks)
    assert {len(task.questions()) for task in tasks} == {work.shape.turns}


def test_work_comes_back_from_its_values() -> None:
    assert work_of(asdict(TURNS)) == TURNS


def test_a_sum_asks_for_its_changes_one_by_one() -> None:
    task = Sum(4, (-6, 3))
    first, second = task.questions()
    assert (first, second) == (
        "What is 4 - 6? Answer with the number.",
        "Add 3 to that. Answer with the number.",
    )
    assert task.answers() == [-2, 1]


def test_a_reward_is_the_share_of_right_turns() -> None:
    task = Sum(4, (-6, 3))
    assert task.reward(["4 - 6 = -2.", "It is 1."]) == 1.0
    assert task.reward(["The answer is 2.", "1"]) == 0.5
    assert task.reward(["no number"]) == 0.0


@pytest.mark.parametrize(("text", "number"), [("4 + 5 = 9.", "9"), ("-2", "-2"), ("none", "")])
def test_the_last_number_counts(text: str, number: str) -> None:
    assert last_number(text) == number


def test_use_at_a_moment_lies_between_the_looks_beside_it() -> None:
    looks = [used(0, 0, 0), used(10, 20, 40)]
    assert usage_at(looks, 5).cpu_s == 10
    assert usage_at(looks, 5).machine_s == 20
    assert usage_at(looks, 99).cpu_s == 20


def test_the_rest_of_a_step_is_what_no_phase_has() -> None:
    looks = [used(0, 0, 0), used(20, 20, 30)]
    (step,) = measured_steps([end(0), end(10, **{GENERATION: 6.0, UPDATE: 3.0})], looks)
    assert step.seconds == 10
    assert step.phases == {GENERATION: 6.0, LOGPROBS: 0.0, UPDATE: 3.0, REST: 1.0}
    assert (step.cpu_s, step.others_s) == (10, 5)


def test_the_peak_is_that_of_all_processes_at_once() -> None:
    looks = [used(0, 0, 0, first=100, ended=500), used(1, 1, 1, first=300, second=250)]
    result = as_json("trl", "1", measured_steps([end(0), end(1)], looks), looks)
    assert result["peak_mb"] == 600
    assert result["processes_mb"] == {"first": 100, "ended": 500}


def test_figures_are_medians_and_rates_over_all_runs_of_a_side() -> None:
    looks = [used(0, 0, 0, all=10), used(100, 100, 100, all=10)]
    phases = {GENERATION: 4.0, UPDATE: 5.0}
    ends = [end(0), end(10, **phases), end(30, **phases), end(42, **phases)]
    run = as_json("default", "1", measured_steps(ends, looks), looks)
    row = figures([run, run])
    assert (row["steps"], row["step_s"], row["step_s_least"], row["step_s_most"]) == (6, 12, 10, 20)
    assert row["step_ms_a_token"] == 140.0
    assert (row["sampled_tokens_a_s"], row["trained_tokens_a_s"]) == (25.0, 16.0)
    assert row["others_cores"] == 0


def test_the_table_has_a_line_for_each_side() -> None:
    looks = [used(0, 0, 0, all=10), used(100, 100, 100, all=10)]
    run = as_json("trl", "1", measured_steps([end(0), end(10)], looks), looks)
    heading, dashes, line = table([figures([run])]).splitlines()
    assert heading.startswith("| side | step, s |")
    assert line.startswith("| trl | 10 (10-10) | 100 |")
    assert heading.count("|") == dashes.count("|") == line.count("|")


@pytest.mark.parametrize("side", SIDES)
def test_each_side_is_a_valid_run(side: str) -> None:
    config = RunConfig.model_validate(settings(WORK, side))
    assert config.run.groups_per_step * config.run.group_size == WORK.shape.sessions


def test_groups_of_equal_rewards_are_trained_but_as_shipped() -> None:
    filtered = {
        side
        for side in SIDES
        if RunConfig.model_validate(settings(WORK, side)).trainer.filters.get("zero_variance")
    }
    assert filtered == {"as-shipped"}


def test_a_run_makes_its_lag_more_steps_before_and_behind_the_measured_ones() -> None:
    made = {side: settings(WORK, side)["run"]["steps"] for side in ("in-turns", "default")}
    assert made == {"in-turns": WARM_UP + 4, "default": WARM_UP + 4 + 2}


def test_the_measured_steps_of_a_run_have_the_tasks_that_all_sides_have(tmp_path: Path) -> None:
    work = replace(WORK, out=str(tmp_path))
    write_run(work, "default")
    lines = map(json.loads, (tmp_path / "tasks.jsonl").read_text().splitlines())
    tasks = [Sum(line["start"], tuple(line["changes"])) for line in lines]
    further = work.shape.groups
    assert tasks[further:-further] == work.tasks()
    assert len(set(tasks)) == len(tasks) == len(work.tasks()) + 2 * further


def test_a_change_replaces_what_it_names_and_nothing_else() -> None:
    before = {"trainer": {"threads": 2, "filters": {"untrainable": "drop"}}, "out": "run"}
    after = merged(before, {"trainer": {"filters": {}}})
    assert after == {"trainer": {"threads": 2, "filters": {}}, "out": "run"}


def committed(step: int, *sessions: str) -> StepCommitted:
    return StepCommitted(
        at_ms=0,
        step=step,
        lineage="l",
        parent_lineage="",
        version=step + 1,
        groups=(StepGroup(group_id=f"g{step}", sessions=sessions),),
    )


def completed(step: int, at_ms: int) -> StepCompleted:
    metrics = {**TIMES, "tokens_trained": 7.0, "reward_mean": 0.5}
    return StepCompleted(
        at_ms=at_ms, step=step, lineage="l", version=step + 1, took_ms=1, metrics=metrics
    )


def test_a_step_has_the_tokens_of_its_batch_and_the_phases_since_the_step_before() -> None:
    control = [
        committed(0, "a"),
        completed(0, 10_000),
        committed(1, "b", "c"),
        completed(1, 30_000),
    ]
    first, second = step_ends(control, {"a": 5, "b": 3, "c": 4})
    assert (first.at_s, first.sampled, first.phases) == (10.0, 5, {})
    assert (second.at_s, second.sampled, second.trained) == (30.0, 7, 7)
    assert second.phases == {GENERATION: 0.0, LOGPROBS: 1.0, UPDATE: 4.0}
    assert second.details["publish_s"] == 0.5


def test_a_result_that_is_kept_is_not_made_again(tmp_path: Path) -> None:
    made = [kept(tmp_path / "run.json", WORK, lambda: {"steps": 4})]
    made.append(kept(tmp_path / "run.json", WORK, lambda: {"steps": 5}))
    assert [result["steps"] for result in made] == [4, 4]


def test_a_result_of_other_options_is_refused(tmp_path: Path) -> None:
    kept(tmp_path / "run.json", WORK, dict)
    with pytest.raises(SideFailed, match="other options"):
        kept(tmp_path / "run.json", TURNS, dict)


def test_a_process_tree_counts_this_process_and_all_that_the_machine_does() -> None:
    use = ProcessTree(getpid()).look()
    assert 0 < use.cpu_s <= use.machine_s
    assert use.peak_mb > 10


class ChatTokenizer:
    """A tokenizer whose ids are characters; `#` ends a message."""

    eos_token_id = ord("#")

    def apply_chat_template(
        self, chats: list[Any], add_generation_prompt: bool, **_: Any
    ) -> dict[str, list[list[int]]]:
        texts = [
            "".join(f"{said['role'][0]}:{said['content']}#\n" for said in chat)
            + ("a:" if add_generation_prompt else "")
            for chat in chats
        ]
        return {"input_ids": [list(map(ord, text)) for text in texts]}

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        return "".join(map(chr, ids)).removesuffix("#")


class AnsweringTrainer:
    """A trainer that gives the next of its answers to all sessions."""

    processing_class = ChatTokenizer()

    def __init__(self, *answers: str) -> None:
        self._answers = iter(answers)

    def _generate_single_turn(self, prompts: list[Any], *_: Any) -> tuple[list[list[int]], None]:
        answer = next(self._answers)
        return [list(map(ord, answer)) for _ in prompts], None


def conversation(*answers: str) -> tuple[str, str, list[str]]:
    """Return the text of a session of two turns, its sampled part, and the answers."""
    task = Sum(4, (-6, 3))
    shape = Shape(turns=2, groups=1, group_size=1, max_tokens=8, max_context=64)
    prompt = [{"role": "user", "content": task.questions()[0]}]
    made = Conversations({task.questions()[0]: task}, shape)([prompt], AnsweringTrainer(*answers))
    ids = made["completion_ids"][0]
    sampled = [token for token, mask in zip(ids, made["env_mask"][0], strict=True) if mask]
    whole = made["prompt_ids"][0] + ids
    return "".join(map(chr, whole)), "".join(map(chr, sampled)), made["texts"][0]


@pytest.mark.parametrize("first", ["-2#", "-2 is"])
def test_a_conversation_for_trl_is_the_template_s_also_behind_an_answer_that_was_cut(
    first: str,
) -> None:
    whole, sampled, texts = conversation(first, "1#")
    asked, further = Sum(4, (-6, 3)).questions()
    said = first.removesuffix("#")
    assert whole == f"u:{asked}#\na:{said}#\nu:{further}#\na:1#"
    assert sampled == first + "1#"
    assert texts == [said, "1"]


def test_rewards_for_trl_are_those_of_the_task() -> None:
    task = Sum(4, (-6, 3))
    prompt = [{"role": "user", "content": task.questions()[0]}]
    rewards = Rewards({task.questions()[0]: task})
    assert rewards([prompt], [[{"content": "unused"}]], texts=[["-2", "7"]]) == [0.5]
    assert rewards([prompt], [[{"content": "-2"}]]) == [0.5]
