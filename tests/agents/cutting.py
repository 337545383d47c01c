"""A proxy between an agent and the gateway that breaks a connection."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx

_FIRST_PART = b"event: response.output_"
_WAIT_S = 0.2
_CHUNK = 65_536


class _Cut:
    """A proxy that passes on everything, but ends the first answer after its first part."""

    def __init__(self, to: httpx.URL) -> None:
        self.cuts = 0
        self._to = (to.host, to.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_WAIT_S)
        self._closed = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        """Return the port on which the proxy listens."""
        port: int = self._listener.getsockname()[1]
        return port

    def close(self) -> None:
        """Stop the threads and close the socket."""
        self._closed.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            with suppress(TimeoutError):
                agent, _ = self._listener.accept()
                gateway = socket.create_connection(self._to)
                for end in (agent, gateway):
                    end.settimeout(_WAIT_S)
                for ends in ((agent, gateway, False), (gateway, agent, True)):
                    self._threads.append(threading.Thread(target=self._pass_on, args=ends))
                    self._threads[-1].start()

    def _pass_on(self, source: socket.socket, to: socket.socket, answers: bool) -> None:
        with source, suppress(OSError):
            while not self._closed.is_set():
                with suppress(TimeoutError):
                    data = source.recv(_CHUNK)
                    if not data:
                        break
                    place = data.find(_FIRST_PART) if answers and not self.cuts else -1
                    to.sendall(data if place < 0 else data[:place])
                    if place >= 0:
                        self.cuts += 1
                        break
            for end in (source, to):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def first_answer_cut(base_url: str) -> Iterator[str]:
    """Yield another base URL of the gateway, on which the first streamed answer breaks off."""
    cut = _Cut(httpx.URL(base_url))
    try:
        yield str(httpx.URL(base_url).copy_with(host="127.0.0.1", port=cut.port))
    finally:
        cut.close()
    assert cut.cuts == 1, "nothing broke"
