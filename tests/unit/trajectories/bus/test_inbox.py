from seamlessflow.consumers.trajectories.bus.inbox import SILENCE_MS, Outages


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


def test_a_silence_ends_with_the_first_record_behind_it() -> None:
    clock = Clock()
    outages = Outages(clock)
    for wait_ms in (1_000, SILENCE_MS - 1, 70_000, 1_000):
        clock.now_ms += wait_ms
        outages.read_records()
    assert outages.ended_ms() == clock.now_ms - 1_000


def test_without_a_silence_there_is_no_end_of_one() -> None:
    clock = Clock()
    outages = Outages(clock)
    for _ in range(100):
        clock.now_ms += 1_000
        outages.read_records()
    assert outages.ended_ms() == 0
