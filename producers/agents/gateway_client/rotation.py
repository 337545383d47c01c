"""Gateways of one system, called in turn; one that does not serve is passed over for a while.

Any gateway serves any session, so a call may be repeated at another one. `client.py` asks for the
gateway of each try, and reports the tries that failed.
"""

import time
from collections.abc import Callable

from seamlessflow.producers.agents.gateway_client.connections import HttpConnections

PASSED_OVER_S = 5.0
"""Time for which a gateway gets no calls after it failed, or closed a connection by itself."""


class GatewayRotation:
    """Connections to each of the gateways whose URLs `urls` lists, with commas."""

    def __init__(self, urls: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._gateways = [HttpConnections(url.strip()) for url in urls.split(",")]
        self._clock = clock
        self._back_at = dict.fromkeys(self._gateways, float("-inf"))
        self._next = 0

    def choose(self) -> HttpConnections:
        """Return the next gateway that serves; if none does, the one that failed first."""
        count = len(self._gateways)
        in_turn = [self._gateways[(self._next + place) % count] for place in range(count)]
        chosen = next((gateway for gateway in in_turn if self._serves(gateway)), None)
        chosen = chosen or min(in_turn, key=lambda gateway: self._back_at[gateway])
        self._next = (self._gateways.index(chosen) + 1) % count
        return chosen

    def pass_over(self, gateway: HttpConnections) -> None:
        """Give a gateway no calls for a while, if others serve."""
        self._back_at[gateway] = self._clock() + PASSED_OVER_S

    def any_serves(self) -> bool:
        """Return whether a gateway is left that is not passed over."""
        return any(self._serves(gateway) for gateway in self._gateways)

    def close(self) -> None:
        """Close the idle connections."""
        for gateway in self._gateways:
            gateway.close()

    def _serves(self, gateway: HttpConnections) -> bool:
        return self._back_at[gateway] <= self._clock()
