"""The trainer's calls of its gang's first rank, over a real connection."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from seamlessflow.trainer.backends.backend import StepInput, UpdateFailed
from seamlessflow.trainer.backends.calls import GangCallName, Reply
from seamlessflow.trainer.link import GangAbsent, GangBackend
from seamlessflow.trainer.roles.gang import GangBroken
from tests.builders.trainer.fake_rank import FakeRank

LIMIT_S = 120.0
STEP = StepInput([], [], 0, 0.1)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def gang() -> Iterator[GangBackend]:
    gang = GangBackend("127.0.0.1", "trainer-1")
    yield gang
    gang.close()


@pytest.fixture
def rank(gang: GangBackend, pool: ThreadPoolExecutor) -> Iterator[FakeRank]:
    """Return the first rank, connected."""
    waiting = pool.submit(gang.connect, LIMIT_S, lambda: False)
    with closing(FakeRank(gang.address, gang.token)) as rank:
        waiting.result(LIMIT_S)
        yield rank


def test_only_a_rank_with_the_token_is_taken(gang: GangBackend, pool: ThreadPoolExecutor) -> None:
    waiting = pool.submit(gang.connect, LIMIT_S, lambda: False)
    with closing(FakeRank(gang.address, "guessed")) as stranger:
        assert stranger.welcome is None
    with closing(FakeRank(gang.address, gang.token)) as rank:
        waiting.result(LIMIT_S)
        assert rank.welcome is not None and rank.welcome.trainer == "trainer-1"
    assert (gang.worker, gang.dtype) == ("w", "float32")


def test_a_trainer_without_a_rank_says_so(gang: GangBackend) -> None:
    with pytest.raises(GangAbsent, match=gang.address):
        gang.connect(0.1, lambda: False)


def test_a_checkpoint_is_written_while_a_step_is_trained(
    gang: GangBackend, pool: ThreadPoolExecutor, rank: FakeRank
) -> None:
    saving = pool.submit(gang.save, Path("/there"))
    save = rank.next_call()
    training = pool.submit(gang.train, STEP)
    train = rank.next_call()
    assert (save.name, train.name) == (GangCallName.SAVE, GangCallName.TRAIN)
    rank.reply(Reply(number=train.number, metrics={"loss": 0.5}, remembered=(0, 1)))
    assert training.result(LIMIT_S) == {"loss": 0.5}
    assert gang.remembered() == (0, 1)
    assert not saving.done()
    rank.reply(Reply(number=save.number, remembered=(0, 1)))
    saving.result(LIMIT_S)


def test_an_error_of_the_rank_is_that_of_the_call(
    gang: GangBackend, pool: ThreadPoolExecutor, rank: FakeRank
) -> None:
    training = pool.submit(gang.train, STEP)
    rank.reply(Reply(number=rank.next_call().number, error="OutOfMemoryError: 2 GB"))
    with pytest.raises(GangBroken, match=r"worker w was lost.*OutOfMemoryError: 2 GB"):
        training.result(LIMIT_S)


def test_an_update_that_failed_in_itself_is_no_loss_of_the_rank(
    gang: GangBackend, pool: ThreadPoolExecutor, rank: FakeRank
) -> None:
    training = pool.submit(gang.train, STEP)
    reply = Reply(number=rank.next_call().number, error="the gradient is not finite", chains=(4,))
    rank.reply(reply)
    rank.close()
    with pytest.raises(UpdateFailed, match="the gradient is not finite") as raised:
        training.result(LIMIT_S)
    assert raised.value.chains == (4,)


def test_a_lost_rank_ends_all_calls(
    gang: GangBackend, pool: ThreadPoolExecutor, rank: FakeRank
) -> None:
    waiting: list[Future[object]] = [pool.submit(gang.train, STEP)]
    waiting.append(pool.submit(gang.save, Path("/there")))
    rank.next_call()
    rank.next_call()
    rank.close()
    for call in waiting:
        with pytest.raises(GangBroken):
            call.result(LIMIT_S)
    assert gang.lost
    with pytest.raises(GangBroken):
        gang.rest()
