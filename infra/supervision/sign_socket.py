"""Socket on which a supervisor gets the signs of life of one process."""

import socket
from pathlib import Path

from seamlessflow.infra.supervision.socket_names import kernel_name

_LONGEST_SIGN_BYTES = 4096


class SignSocket:
    """A datagram socket at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        with kernel_name(path) as name:
            self._socket.bind(name)

    def signed(self) -> bool:
        """Return whether a sign came since the last call."""
        came = False
        try:
            while True:
                self._socket.recv(_LONGEST_SIGN_BYTES)
                came = True
        except BlockingIOError:
            return came

    def close(self) -> None:
        """Close the socket and remove its file."""
        self._socket.close()
        self._path.unlink(missing_ok=True)
