"""The benchmark `exact_tokens`: what changes when text is encoded again, and its tables."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from benchmarks.exact import report
from benchmarks.exact.answers import Line, Plan, plans, read, sampled
from benchmarks.exact.encodings import BROKEN, LOST, Change, changes, kind_of
from benchmarks.exact.interruptions import ScoredAnswer
from benchmarks.exact.picture import draw_prompts, draw_rewards, smoothed
from benchmarks.exact.runs import Run
from benchmarks.exact.shares import AnswerChanges, PromptChanges, Share
from benchmarks.exact.tasks import Sum, sums
from benchmarks.exact.training import Compared, StepRow
from benchmarks.exact.variants import Answer

SPELT = [b"", b"ca", b"t", b"cat", b" ", b"\n", b"\n\n", b"1", b"2", b"12", b"\xf0\x9f", b"?"]
CA, T, CAT, SPACE, LINE, LINES, ONE, TWO, TWELVE, EMOJI, MARK = range(1, 12)


def changed(sampled_ids: Sequence[int], again: Sequence[int]) -> list[Change]:
    return changes(sampled_ids, again, SPELT.__getitem__)


def test_equal_ids_have_no_change() -> None:
    assert changed([CAT, SPACE, ONE], [CAT, SPACE, ONE]) == []


def test_each_part_with_other_ids_is_a_change_of_its_own() -> None:
    assert changed([CA, T, SPACE, ONE, TWO, MARK], [CAT, SPACE, TWELVE, MARK]) == [
        Change("words", ("ca", "t"), ("cat",)),
        Change("digits", ("1", "2"), ("12",)),
    ]


def test_neighbouring_changes_are_cut_at_a_common_border() -> None:
    assert [str(change) for change in changed([LINES, CA, T], [LINE, LINE, CAT])] == [
        "\\n\\n → \\n|\\n",
        "ca|t → cat",
    ]


def test_half_a_character_is_broken() -> None:
    (change,) = changed([CAT, EMOJI], [CAT, MARK])
    assert change == Change(BROKEN, ("\\xf0\\x9f",), ("?",))


def test_text_that_the_other_side_lacks_is_lost() -> None:
    assert changed([CAT, LINE], [CAT]) == [Change(LOST, ("\\n",), ())]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (" word", "words"),
        ("42", "digits"),
        ("\n\n", "white space"),
        ('":', "punctuation"),
        ("春天", "letters beyond ASCII"),
        ("😀", "signs beyond ASCII"),
        ("a1", "mixed"),
    ],
)
def test_a_change_has_the_kind_of_its_text(text: str, kind: str) -> None:
    assert kind_of(text.encode()) == kind


def test_a_share_has_wilsons_interval() -> None:
    low, high = Share(5, 100).interval()
    assert low == pytest.approx(0.0215, abs=1e-4)
    assert high == pytest.approx(0.1118, abs=1e-4)
    assert Share(0, 50).interval()[0] == 0.0
    assert Share(0, 0).interval() == (0.0, 1.0)


def test_a_sum_is_right_by_the_last_number_of_the_answer() -> None:
    task = Sum("What is 5 + 3?", 8)
    assert [task.reward(text) for text in ("8", "5 + 3 = 8.", "8 or 9", "", "8" * 5000)] == [
        *(1.0, 1.0, 0.0, 0.0, 0.0)
    ]
    assert sums(1, 2, 4) == sums(1, 2, 4) != sums(2, 2, 4)
    assert min(task.value for task in sums(0, 0, 200)) >= 0


def test_an_exact_answer_keeps_its_ids_and_a_padded_one_has_those_of_its_text() -> None:
    answer = Answer((CA, T), (-1.0, -2.0), (CAT,))
    longer = Answer((CAT,), (-1.0,), (CA, T))
    assert (
        answer.completion("exact").ids == torch.tensor([CA, T], dtype=torch.int32).numpy().tobytes()
    )
    assert bytes(answer.completion("padded").logprobs) == floats(-1.0)
    assert bytes(longer.completion("padded").logprobs) == floats(-1.0, 0.0)
    assert [answer.trained(variant) for variant in ("exact", "padded", "dropped")] == [
        *(True, True, False)
    ]
    assert Answer((CAT,), (-1.0,), (CAT,)).trained("dropped")


def floats(*values: float) -> bytes:
    return torch.tensor(values).numpy().tobytes()


def test_a_comparison_of_gradients_is_a_share_of_the_exact_norm() -> None:
    pair = Compared.of_gradients(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 3.5]))
    assert pair.distance == pytest.approx(0.1)
    assert 0.99 < pair.cosine < 1


def test_plans_have_all_questions_in_each_part() -> None:
    assert len({line.question for line in Plan(False, 16, 3).lines()[:24]}) == 24
    assert len(plans(tools=True, scale=1)) > len(plans(tools=False, scale=1))


def test_a_file_that_is_whole_is_not_sampled_again(tmp_path: Path) -> None:
    plan = Plan(False, 16, 1)
    rows = [
        f'{{"kind": "{line.kind}", "question": "q", "tools": false, "limit": 16, "sample": 0, '
        '"turns": [[1, 2]]}\n'
        for line in plan.lines()
    ]
    (tmp_path / plan.file).write_text("".join(rows))
    assert read(tmp_path / plan.file)[0] == Line("sums", "q", False, 16, 0, ((1, 2),))
    nothing: list[int] = list(sampled(plan, None, None, tmp_path))  # type: ignore[arg-type]
    assert nothing == []


def row(step: int, reward: float, compared: dict[str, Compared], changed: int = 2) -> StepRow:
    metrics = {"grad_norm": 2.0, "mismatch_mean": 1e-5, "mismatch_max": 1e-4}
    return StepRow(step, reward, 64, changed, 900, metrics, [-3.0], [0.5], compared)


def test_tables_count_what_changed(tmp_path: Path) -> None:
    word = Change("words", ("ca", "t"), ("cat",))
    answers = [AnswerChanges("sums", False, 16, 10, True, (word,) * n) for n in (0, 0, 0, 2)]
    assert "| no | 16 | 10.0 | 1 of 4: 25.0 %" in report.answers_table(answers)
    assert "| sums | 1 of 4" in report.questions_table(answers, 16)
    prompts = [PromptChanges(False, 2, 50, (word,)), PromptChanges(False, 3, 80, ())]
    assert "| no | 3 | 80 | 0 of 1" in report.prompts_table(prompts)
    draw_prompts(prompts, "a model", tmp_path / "prompts.png")
    assert (tmp_path / "prompts.png").stat().st_size > 0
    assert "| words | 1 of 1: 100.0 %" in report.kinds_table([word])
    assert "`ca·t` → `cat`" in report.kinds_table([word])


def test_tables_of_training_have_a_row_for_each_variant(tmp_path: Path) -> None:
    near = {"recomputed": Compared(2.0, 0.25, 0.97)}
    runs = {
        Run("exact", seed, 4, 16): [row(n, n / 4, near if n == 0 else {}) for n in range(4)]
        for seed in range(2)
    }
    rows = [step for of_run in runs.values() for step in of_run]
    assert "| `exact` | 2 | 0.000 ± 0.000 | 0.750 ± 0.000 | 2.000" in report.training_table(runs)
    assert "| `recomputed` | 2 of 2 | 0.250" in report.gradients_table(rows)
    assert "| whole answer | 8 | -3.000 |" in report.gaps_table(rows)
    assert smoothed([0.0, 1.0]) == [0.0, 0.5]
    draw_rewards(runs, tmp_path / "training.png")
    assert (tmp_path / "training.png").stat().st_size > 0


def test_gradients_of_steps_without_a_changed_answer_are_equal_and_lessen_no_mean() -> None:
    pairs = ((0, Compared(2.0, 0.0, 1.0)), (1, Compared(2.0, 0.25, 0.97)), (0, None))
    rows = [
        row(place, 0.5, {"recomputed": pair} if pair else {}, changed)
        for place, (changed, pair) in enumerate(pairs)
    ]
    assert "| `recomputed` | 1 of 2 | 0.250 | 0.250 | 0.9700 |" in report.gradients_table(rows)
    assert "`recomputed`" not in report.gradients_table(rows[:1])


def test_interrupted_tokens_are_measured_under_the_version_that_sampled_them() -> None:
    answer = ScoredAnswer((1, 2), (0, 1), (-1.0, -2.0), ((-1.0, -5.0), (-4.0, -2.0)))
    printed = report.interruptions_table({"new weights": [answer]})
    assert (
        "| new weights | 1 | 1 + 1 | 0.0e+00 ± 0e+00 | 0.0e+00 ± 0e+00 | 0.0e+00 | 1.5e+00 "
        in printed
    )
