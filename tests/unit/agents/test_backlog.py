from infra.kafka.client import Received
from producers.agents.backlog import Backlog
from tests.builders.records.tasks import task

TASK = task()


def received(partition: int, offset: int) -> Received:
    return Received("tasks", partition, offset, 0, None, (), TASK)


def test_tasks_leave_in_the_order_they_came_with_the_offsets_behind_them() -> None:
    backlog = Backlog()
    backlog.add([received(0, 5), received(1, 9), received(0, 6), received(0, 7)])
    taken, offsets = backlog.pop(3)
    assert [(item.partition, item.offset) for item in taken] == [(0, 5), (1, 9), (0, 6)]
    assert offsets == {("tasks", 0): 7, ("tasks", 1): 10}
    assert len(backlog) == 1


def test_what_was_not_taken_is_not_committed() -> None:
    backlog = Backlog()
    backlog.add([received(0, 5)])
    assert backlog.pop(0) == ([], {})


def test_tasks_of_a_partition_that_went_elsewhere_are_forgotten() -> None:
    backlog = Backlog()
    backlog.add([received(0, 5), received(1, 9)])
    backlog.drop([("tasks", 0)])
    taken, _ = backlog.pop(10)
    assert [item.partition for item in taken] == [1]
