"""Strategies: the roles that each one wants."""

import sys
from pathlib import Path

import pytest

from seamlessflow.scheduler.decisions.snapshot import MeanCosts, Snapshot, WorkerView
from seamlessflow.scheduler.decisions.strategies.built_in import (
    colocated,
    disaggregated,
    multiplexed,
)
from seamlessflow.scheduler.decisions.strategies.registry import UnknownStrategy, named
from seamlessflow.scheduler.decisions.strategies.wanted import Strategy

ROLLOUT, TRAIN = frozenset({"rollout"}), frozenset({"train"})
BOTH = ROLLOUT | TRAIN


def worker(
    name: str,
    tags: frozenset[str] = BOTH,
    role: str = "none",
    able: frozenset[str] | None = None,
    ratio: float = 1.0,
    devices: int = 1,
) -> WorkerView:
    return WorkerView(
        name=name,
        tags=tags,
        able=tags if able is None else able,
        role=role,
        ratio=ratio,
        devices=devices,
    )


def see(
    *workers: WorkerView,
    batch: bool = False,
    under_way: bool = False,
    gang: str = "",
    gang_size: int | None = None,
    helpers: int = 0,
    costs: MeanCosts | None = None,
) -> Snapshot:
    return Snapshot(
        now_ms=0,
        workers=workers,
        batch=batch,
        under_way=under_way,
        gang=frozenset(gang.split()),
        gang_size=gang_size,
        helpers=helpers,
        costs=costs or MeanCosts(),
    )


def roles(strategy: Strategy, snapshot: Snapshot) -> dict[str, str]:
    return {want.worker: want.role for want in strategy(snapshot)}


def optional(strategy: Strategy, snapshot: Snapshot) -> set[str]:
    return {want.worker for want in strategy(snapshot) if want.optional}


def test_colocated_workers_all_train_when_a_batch_is_ready_else_all_roll_out() -> None:
    both = worker("a"), worker("b")

    assert roles(colocated, see(*both)) == {"a": "rollout", "b": "rollout"}
    assert roles(colocated, see(*both, batch=True)) == {"a": "train", "b": "train"}


def test_a_worker_that_does_not_train_is_told_why_with_the_figures() -> None:
    all_of_them = worker("a"), worker("b", devices=2), worker("c", ROLLOUT)

    def reasons(batch: bool, gang_size: int) -> dict[str, tuple[str, dict[str, float]]]:
        wanted = multiplexed(see(*all_of_them, batch=batch, gang_size=gang_size))
        return {wish.worker: (wish.reason, dict(wish.figures)) for wish in wanted}

    assert reasons(batch=False, gang_size=2) == {
        "a": ("no batch to train", {"missing_groups": 0}),
        "b": ("no batch to train", {"missing_groups": 0}),
        "c": ("only rolls out", {}),
    }
    assert reasons(batch=True, gang_size=1)["b"] == ("is not in the gang", {"gang": 1})
    assert reasons(batch=True, gang_size=4)["a"] == (
        "no gang can be formed",
        {"devices": 3, "needed": 4},
    )


@pytest.mark.parametrize("batch", [False, True])
def test_disaggregated_workers_keep_their_role(batch: bool) -> None:
    split = worker("a", ROLLOUT), worker("b", TRAIN)

    assert roles(disaggregated, see(*split, batch=batch)) == {"a": "rollout", "b": "train"}


def test_disaggregated_splits_workers_that_can_do_both_and_stays_with_it() -> None:
    free = [worker("a", ratio=1), worker("b", ratio=2), worker("c", ratio=3)]
    settled = [worker("a", role="train", ratio=1), *free[1:]]

    assert roles(disaggregated, see(*free, gang_size=1))["c"] == "train"
    assert roles(disaggregated, see(*settled, gang_size=1)) == {
        "a": "train",
        "b": "rollout",
        "c": "rollout",
    }


def test_multiplexed_never_interrupts_workers_that_only_roll_out() -> None:
    mixed = worker("a", ROLLOUT), worker("b")

    assert roles(multiplexed, see(*mixed)) == {"a": "rollout", "b": "rollout"}
    assert roles(multiplexed, see(*mixed, batch=True)) == {"a": "rollout", "b": "train"}


def test_a_gang_is_whole_or_not_at_all() -> None:
    one_lost = worker("a", role="rollout"), worker("b", able=ROLLOUT, role="rollout")

    wanted = roles(multiplexed, see(*one_lost, batch=True, gang_size=2))
    assert wanted == {"a": "rollout", "b": "rollout"}


def test_the_workers_best_placed_in_training_make_the_gang() -> None:
    three = worker("a", ratio=1), worker("b", ratio=3), worker("c", ratio=2)

    wanted = roles(multiplexed, see(*three, batch=True, gang_size=2))
    assert wanted == {"a": "rollout", "b": "train", "c": "train"}


def test_the_size_of_a_gang_counts_devices() -> None:
    nodes = worker("a", devices=8, ratio=3), worker("b", devices=4), worker("c", devices=4)

    def gang(size: int) -> set[str]:
        wanted = roles(multiplexed, see(*nodes, batch=True, gang_size=size))
        return {name for name, role in wanted.items() if role == "train"}

    assert gang(8) == {"a"}
    assert gang(4) == {"b"}
    assert gang(12) == {"a", "b"}
    assert gang(17) == set()


def test_a_gang_of_whole_workers_may_be_larger_than_its_size_and_stays() -> None:
    nodes = worker("a", devices=8, role="train"), worker("b", devices=8, role="rollout")

    wanted = roles(multiplexed, see(*nodes, batch=True, gang="a", gang_size=3))
    assert wanted == {"a": "train", "b": "rollout"}


def test_a_helper_adds_all_its_devices() -> None:
    nodes = worker("a", devices=4, ratio=2), worker("b", devices=4)
    costs = MeanCosts(train=8000, to_train=300, to_rollout=300)

    def trains(helpers: int) -> bool:
        seen = see(*nodes, batch=True, gang_size=4, helpers=helpers, costs=costs)
        return roles(multiplexed, seen)["b"] == "train"

    assert trains(4)
    assert not trains(3)


def test_a_gang_that_trains_stays_when_a_better_worker_joins() -> None:
    now = see(
        worker("a", role="train", ratio=1),
        worker("b", ratio=9),
        batch=True,
        under_way=True,
        gang="a",
        gang_size=1,
    )

    assert roles(multiplexed, now) == {"a": "train", "b": "rollout"}


def test_a_gang_of_all_takes_in_a_new_worker_only_between_steps() -> None:
    here = worker("a", role="train"), worker("b")

    training = see(*here, batch=True, under_way=True, gang="a")
    assert roles(multiplexed, training)["b"] == "rollout"
    assert roles(multiplexed, see(*here, batch=True, gang="a"))["b"] == "train"


def test_going_back_to_rollout_is_optional_except_when_no_gang_can_be_formed() -> None:
    after_step = see(worker("a", role="train"))
    broken = see(worker("a", role="train"), worker("b", able=ROLLOUT), batch=True, gang_size=2)

    assert optional(multiplexed, after_step) == {"a"}
    assert optional(multiplexed, broken) == set()


def test_helpers_join_where_they_save_more_than_they_cost() -> None:
    three = worker("a"), worker("b"), worker("c")

    def trainers(train: float) -> int:
        costs = MeanCosts(train=train, to_train=50, to_rollout=50)
        now = see(*three, batch=True, gang_size=1, helpers=2, costs=costs)
        return list(roles(multiplexed, now).values()).count("train")

    assert [trainers(150), trainers(400), trainers(900)] == [1, 2, 3]


def test_a_strategy_of_ones_own_is_found_by_module_and_function() -> None:
    seen, strategy = (
        see(worker("a")),
        named("seamlessflow.scheduler.decisions.strategies.built_in:colocated"),
    )

    assert strategy(seen) == colocated(seen)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("os:getcwd", "of a snapshot it raised TypeError"),
        ("reprlib:repr", "of a snapshot it returned 'Snapshot("),
        ("inspect:isclass", "of a snapshot it returned False, not a list of Wanted"),
        ("builtins:str", "it cannot be recorded: its module has no file"),
    ],
)
def test_a_callable_that_is_no_strategy_is_refused_with_what_it_does(
    name: str, reason: str
) -> None:
    with pytest.raises(UnknownStrategy) as refused:
        named(name)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    "name",
    ["none", "no.such.module:f", "seamlessflow.scheduler.decisions.strategies.built_in:none", ":"],
)
def test_an_unknown_strategy_is_refused(name: str) -> None:
    with pytest.raises(UnknownStrategy):
        named(name)


def test_a_strategy_may_lie_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    Path("strategy_of_a_user.py").write_text("def rests(snapshot):\n    return []\n")
    Path("strategy_that_fails.py").write_text("1 / 0")

    assert named("strategy_of_a_user:rests")(Snapshot(now_ms=0, workers=())) == []
    with pytest.raises(
        UnknownStrategy, match=r"cannot be imported: .*, line 1: ZeroDivisionError: .*by zero"
    ):
        named("strategy_that_fails:rests")
    Path("strategy_that_exits.py").write_text("import sys\nsys.exit(3)")
    with pytest.raises(UnknownStrategy, match=r"cannot be imported: .*, line 2: SystemExit: 3"):
        named("strategy_that_exits:rests")


def test_the_nearest_strategy_is_named() -> None:
    with pytest.raises(UnknownStrategy, match=r"module:function\); did you mean multiplexed\?"):
        named("multiplex")
