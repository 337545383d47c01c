"""Tags of workers and wishes of turns: their form, and the workers that fit."""

from dataclasses import dataclass

import pytest

from seamlessflow.infra.worker.tags import check_tag, check_worker, read_wishes, wished, wishes_of


@dataclass(frozen=True)
class Worker:
    tags: frozenset[str]
    free: bool = True


def worker(*tags: str, free: bool = True) -> Worker:
    return Worker(frozenset(tags), free)


@pytest.mark.parametrize(
    "tag", ["rollout", "decode", "hw:H20", "precision:fp8", "site:berlin-2", "big", "rack_7"]
)
def test_known_tags_and_others_of_their_form_are_taken(tag: str) -> None:
    assert check_tag(tag) == tag


@pytest.mark.parametrize(
    ("tag", "reason"),
    [
        ("decod", "is 'decode' meant"),
        ("training", "is 'train' meant"),
        ("prefil", "is 'prefill' meant"),
        ("hw :H20", "is no tag"),
        ("HW:H20", "is no tag"),
        ("precison:bf16", "is 'precision:bf16' meant"),
        ("hw", "write hw:NAME"),
        ("decode:H20", "write decode"),
        ("hw:", "is no tag"),
        ("", "is no tag"),
    ],
)
def test_another_form_is_refused_and_the_tag_that_was_meant_is_named(tag: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_tag(tag)


def test_a_worker_needs_a_role() -> None:
    assert check_worker(("rollout", "hw:A")) == ("rollout", "hw:A")
    with pytest.raises(ValueError, match="names no role"):
        check_worker(("decode", "hw:A"))


def test_wishes_are_a_list_with_commas() -> None:
    assert read_wishes("hw:H20, decode!,,hw:H20") == ("hw:H20", "decode!")
    assert read_wishes("") == ()
    assert str(wishes_of(("decode!", "hw:H20", "decode"))) == "hw:H20, decode!"
    assert not wishes_of(())
    with pytest.raises(ValueError, match="'decode' meant"):
        read_wishes("decoed!")
    with pytest.raises(ValueError, match="more than"):
        read_wishes(",".join(f"t{number}" for number in range(17)))


def test_preferred_tags_count_while_there_is_a_place_and_required_ones_always() -> None:
    fast, full, slow = worker("decode", "hw:A"), worker("decode", free=False), worker("prefill")
    everyone = [fast, full, slow]

    assert wished(everyone, wishes_of(("decode",))) == [fast]
    assert wished([full, slow], wishes_of(("decode",))) == [slow]
    assert wished([full], wishes_of(("decode",))) == [full]
    assert wished(everyone, wishes_of(("decode!",))) == [fast, full]
    assert wished(everyone, wishes_of(("reward!",))) == []
    assert wished(everyone, wishes_of(("decode", "hw:A"))) == [fast]
    assert wished(everyone, wishes_of(())) == everyone
