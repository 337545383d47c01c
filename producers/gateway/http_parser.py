"""An HTTP parser that reads a request as if it offered no other protocol.

A client may offer to go on in another protocol: `Connection: Upgrade, HTTP2-Settings` with
`Upgrade: h2c` is what Java's client sends by default. The gateway takes up no offer, and a server
that does not must read the request as it is (RFC 9110, section 7.8). But httptools ends each
request with an offer behind its head, so that its body would be empty. Such a head is therefore
parsed again without the offer.
"""

from collections.abc import Callable, Iterable
from typing import Any

import httptools

_CONNECT = b"CONNECT"
_OFFERS = (b"upgrade", b"http2-settings")


class OfferlessParser:
    """A parser of the requests of one connection; a drop-in for httptools'.

    `protocol` has the callbacks and the `url` and `headers` that they collect. Its
    `on_headers_complete` and `on_message_complete` do nothing while `is_offer` is true.
    """

    def __init__(self, protocol: Any, make: Callable[[Any], Any]) -> None:
        self._protocol = protocol
        self._make = make
        self._parser = make(protocol)

    @property
    def is_offer(self) -> bool:
        """Return whether the head that ends now offers another protocol, so it is parsed again."""
        # The target of a CONNECT is what the client wants to talk to: there is no body.
        return bool(self._parser.should_upgrade()) and self._parser.get_method() != _CONNECT

    def feed_data(self, data: bytes) -> None:
        """Read bytes. Raises as httptools does, but for an offer only at a CONNECT."""
        while data:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as offer:
                if not self.is_offer:
                    raise
                data = self._head_without_offer() + data[offer.args[0] :]
                self._parser = self._make(self._protocol)

    def _head_without_offer(self) -> bytes:
        parser, protocol = self._parser, self._protocol
        version = parser.get_http_version().encode()
        begin = b"%b %b HTTP/%b" % (parser.get_method(), protocol.url, version)
        return b"\r\n".join([begin, *_kept(protocol.headers), b"", b""])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)


def _kept(headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """Return the lines of a head but those of the offer."""
    lines: list[bytes] = []
    for name, value in headers:
        if name == b"connection":
            words = [word for word in value.split(b",") if word.strip().lower() not in _OFFERS]
            value = b",".join(words).strip()
        if name not in _OFFERS:
            lines.append(name + b": " + value)
    return lines
