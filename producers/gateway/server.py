"""A gateway's life: listen, serve, and on the stop event leave, drain and close in order.

A gateway that leaves is not ready and opens no sessions, but takes calls for `leave_s`. Each answer
closes its connection, so that the client's next connection goes to another gateway. Then it stops
listening, closes idle connections, and finishes the calls under way.
"""

import asyncio
import logging
import secrets
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from math import ceil

import uvicorn

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.network.addresses import address_of
from seamlessflow.infra.process import collect_seldom, ready
from seamlessflow.infra.telemetry.instruments import instruments
from seamlessflow.producers.gateway.app import App
from seamlessflow.producers.gateway.http_protocol import HttpProtocol
from seamlessflow.producers.gateway.link import Link
from seamlessflow.producers.gateway.settings import GatewaySection, GatewaySettings
from seamlessflow.schemas.topics import FLEET, REPLIES, REQUESTS

_TOPICS = (REQUESTS, REPLIES, FLEET)
_BACKLOG = 2048
_CLOSE_TIMEOUT_S = 5
_UNREAD_MARGIN_S = 5
_GC_THRESHOLDS = (10_000, 50, 50)
_log = logging.getLogger(__name__)


class AddressUnavailable(SeamlessFlowError):
    """Failure to listen on the address in the settings."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        self.host = host
        self.port = port
        self.reason = reason
        super().__init__(
            f"cannot listen on {host} port {port} (gateway.host, gateway.port): {reason}"
        )


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to `seamlessflow.infra.process`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(settings: GatewaySettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set.

    Raises `AddressUnavailable` if the address is taken, and what `find_cluster` raises.
    """
    listener = _listener(settings.gateway)
    url = settings.gateway.public_url or f"http://{address_of(*listener.getsockname()[:2])}"
    cluster = await asyncio.to_thread(find_cluster, settings.kafka, _TOPICS, stop.is_set)
    instance = secrets.token_hex(8)
    replies = cluster.partitions[REPLIES.name]
    with instruments(settings, "gateway", instance) as made:
        link = Link(
            settings.kafka,
            settings.gateway,
            url.rstrip("/"),
            instance,
            made,
            replies,
            stop.is_set,
        )
        await link.start()
        app = App(link, settings.gateway, url.rstrip("/"), made.metrics, made.traces)
        # Garbage collection over the objects made at start took a fifth of a call's CPU.
        collect_seldom(_GC_THRESHOLDS)
        with closing(link):
            await _serve(app, link, settings, listener, stop)


async def _serve(
    app: App, link: Link, settings: GatewaySettings, listener: socket.socket, stop: asyncio.Event
) -> None:
    server = _Server(_config(app, settings.gateway))
    serving = asyncio.create_task(server.serve([listener]))
    heartbeats = asyncio.create_task(link.send_heartbeats())
    stopping = asyncio.create_task(stop.wait())
    ready(_log, "gateway %s listens on %s", link.instance, listener.getsockname())
    # Heartbeats never end by themselves: if one of the three ends, the gateway stops or has failed.
    await asyncio.wait({serving, heartbeats, stopping}, return_when=asyncio.FIRST_COMPLETED)
    app.in_flight.leave()
    if stop.is_set():
        await asyncio.wait(
            {serving, heartbeats},
            timeout=settings.gateway.leave_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
    server.should_exit = True
    await app.in_flight.drain(settings.gateway.shutdown_timeout_s)
    heartbeats.cancel()
    results = await asyncio.gather(serving, heartbeats, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


def _listener(settings: GatewaySection) -> socket.socket:
    host = settings.host
    port = settings.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if settings.reuse_port:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise AddressUnavailable(host, port, error.strerror or str(error)) from error
    return listener


def _config(app: App, settings: GatewaySection) -> uvicorn.Config:
    class Protocol(HttpProtocol):
        head_timeout_s = settings.body_timeout_s
        # A turn's own limit comes first, so that its answer counts as not delivered.
        unread_timeout_s = settings.turn_timeout_s + _UNREAD_MARGIN_S

    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=int(settings.keep_alive_s),
        timeout_graceful_shutdown=ceil(settings.shutdown_timeout_s) + _CLOSE_TIMEOUT_S,
    )
