"""The choice among gateways."""

import pytest

from seamlessflow.producers.agents.gateway_client.client import PASSED_OVER_S, GatewayRotation

URLS = "http://a:1, http://b:1,http://c:1"


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gateways(clock: Clock) -> GatewayRotation:
    return GatewayRotation(URLS, clock)


def test_calls_go_to_each_gateway_in_turn(gateways: GatewayRotation) -> None:
    chosen = [gateways.choose() for _ in range(6)]

    assert len(set(chosen)) == 3
    assert chosen[:3] == chosen[3:]


def test_a_gateway_that_failed_is_passed_over_for_a_while(
    gateways: GatewayRotation, clock: Clock
) -> None:
    failed = gateways.choose()
    gateways.pass_over(failed)

    assert failed not in [gateways.choose() for _ in range(6)]
    clock.now = PASSED_OVER_S
    assert failed in [gateways.choose() for _ in range(3)]


def test_if_none_serves_the_one_that_failed_first_is_tried(
    gateways: GatewayRotation, clock: Clock
) -> None:
    failed = [gateways.choose() for _ in range(3)]
    for gateway in reversed(failed):
        gateways.pass_over(gateway)
        clock.now += 1

    assert not gateways.any_serves()
    assert gateways.choose() is failed[-1]


def test_one_gateway_is_chosen_even_if_it_failed() -> None:
    gateways = GatewayRotation("http://a:1")
    gateways.pass_over(only := gateways.choose())

    assert gateways.choose() is only


@pytest.mark.parametrize("urls", ["", "http://a:1,", "a:1"])
def test_each_part_of_the_list_is_a_url(urls: str) -> None:
    with pytest.raises(ValueError, match="no http or https URL"):
        GatewayRotation(urls)
