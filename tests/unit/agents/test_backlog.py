from seamlessflow.infra.kafka.client import Received
from seamlessflow.producers.agents.backlog import Backlog, Place, Progress
from tests.builders.records.tasks import task

TASK = task()
ONE, TWO = ("tasks", 0), ("tasks", 1)


def received(partition: int, offset: int) -> Received:
    return Received("tasks", partition, offset, 0, None, (), TASK)


def owning(ended: int = 5, begun: int = 5) -> Backlog:
    backlog = Backlog()
    backlog.add_partition(ONE, Progress(ended, begun))
    backlog.add_partition(TWO, Progress(9, 9))
    return backlog


def test_tasks_leave_in_the_order_they_came() -> None:
    backlog = owning()
    backlog.add([received(0, 5), received(1, 9), received(0, 6), received(0, 7)])
    taken, _ = backlog.pop(3)
    assert [(item.partition, item.offset) for item in taken] == [(0, 5), (1, 9), (0, 6)]
    assert len(backlog) == 1


def test_a_task_is_committed_as_begun_when_it_leaves_and_as_ended_when_it_is_over() -> None:
    backlog = owning()
    backlog.add([received(0, 5), received(1, 9), received(0, 6), received(0, 7)])
    _, progress = backlog.pop(3)
    assert progress == {ONE: Progress(5, 7), TWO: Progress(9, 10)}
    assert backlog.end([Place(ONE, 6)]) == {ONE}
    assert backlog.progress([ONE]) == {ONE: Progress(5, 7)}
    backlog.end([Place(ONE, 5)])
    assert backlog.progress([ONE]) == {ONE: Progress(7, 7)}


def test_what_was_not_taken_is_not_committed() -> None:
    backlog = owning()
    backlog.add([received(0, 5)])
    assert backlog.pop(0) == ([], {})


def test_tasks_that_a_predecessor_began_are_known_and_stay_committed_until_they_are_over() -> None:
    backlog = owning(ended=5, begun=7)
    backlog.add([received(0, 5), received(0, 6), received(0, 7)])
    [first], progress = backlog.pop(1)
    assert backlog.was_begun(first)
    assert progress == {ONE: Progress(5, 7)}
    backlog.end([Place(ONE, 5)])
    assert backlog.progress([ONE]) == {ONE: Progress(6, 7)}
    rest, progress = backlog.pop(2)
    assert [backlog.was_begun(item) for item in rest] == [True, False]
    assert progress == {ONE: Progress(6, 8)}


def test_tasks_of_a_partition_that_went_elsewhere_are_forgotten() -> None:
    backlog = owning()
    backlog.add([received(0, 5), received(1, 9)])
    backlog.drop([ONE])
    taken, _ = backlog.pop(10)
    assert [item.partition for item in taken] == [1]
    assert backlog.end([Place(ONE, 5)]) == set()


def test_episodes_that_go_on_here_are_over_for_the_next_owner_and_the_rest_is_not() -> None:
    backlog = owning(ended=5, begun=7)
    backlog.add([received(0, 5), received(0, 6)])
    backlog.pop(1)
    assert backlog.drop([ONE]) == {ONE: Progress(6, 7)}


def test_what_is_not_over_when_the_process_ends_is_left_to_the_next_owner() -> None:
    backlog = owning(ended=5, begun=5)
    backlog.add([received(0, 5), received(0, 6), received(1, 9)])
    backlog.pop(2)
    backlog.end([Place(ONE, 5)])
    assert backlog.leave() == {ONE: Progress(6, 7), TWO: Progress(9, 9)}
    assert len(backlog) == 0


def test_a_partition_that_comes_back_does_not_bring_the_tasks_that_run_here() -> None:
    """An outage of Kafka may cost the partition before its hand-over is committed."""
    backlog = owning()
    backlog.add([received(0, 5), received(0, 6)])
    backlog.pop(2)
    backlog.drop([ONE])
    backlog.end([Place(ONE, 6)])
    backlog.add_partition(ONE, Progress(5, 7))
    backlog.add([received(0, 5), received(0, 6), received(0, 7)])
    popped, progress = backlog.pop(2)
    assert [(item.offset, backlog.was_begun(item)) for item in popped] == [(6, True), (7, False)]
    assert progress == {ONE: Progress(5, 8)}
    assert backlog.end([Place(ONE, 5)]) == {ONE}
    assert backlog.progress([ONE]) == {ONE: Progress(6, 8)}


def test_tasks_that_could_not_be_committed_are_as_if_they_had_never_left() -> None:
    backlog = owning()
    backlog.add([received(0, 5), received(1, 9), received(0, 6)])
    taken, _ = backlog.pop(3)
    backlog.put_back(taken)
    assert backlog.progress([ONE, TWO]) == {ONE: Progress(5, 5), TWO: Progress(9, 9)}
    assert backlog.pop(3)[0] == taken
