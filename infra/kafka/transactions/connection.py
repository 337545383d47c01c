"""Connection to one broker for requests that librdkafka does not have.

It logs in as the clients do, with those client options that `Connection` reads.
"""

import base64
import hashlib
import hmac
import secrets
import socket
import ssl
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from seamlessflow.infra.errors import KafkaRefused, KafkaUnavailable, SettingsRejected
from seamlessflow.infra.kafka.transactions.wire import BrokerAnswer
from seamlessflow.infra.settings import KafkaSettings, SecretStr

_TIMEOUT_S = 5.0
_CLIENT = "seamlessflow-transactions"
_HANDSHAKE = (17, 1)
_AUTHENTICATE = (36, 0)
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Connection:
    """A socket to a broker; a context manager. Every request may take 5 s.

    Raises `KafkaUnavailable`, `KafkaRefused` and `SettingsRejected`, the last for a login that only
    librdkafka can do.
    """

    def __init__(self, kafka: KafkaSettings, host: str, port: int) -> None:
        self._servers = kafka.bootstrap_servers
        self._options = _plain(kafka.options)
        self._broker = f"{host}:{port}"
        protocol = self._options.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in _PROTOCOLS:
            raise _unsupported("security.protocol", protocol, _PROTOCOLS)
        try:
            self._socket = socket.create_connection((host, port), _TIMEOUT_S)
            if protocol.endswith("SSL"):
                context = _tls(self._options)
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
            if protocol.startswith("SASL"):
                self._log_in()
        except OSError as error:
            raise self._away(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    def ask(self, request: tuple[int, int], body: bytes) -> BrokerAnswer:
        """Return the answer to a request with tagged fields, behind its header."""
        answer = self._exchange(request, b"\0" + body)
        answer.tags()
        return answer

    def _exchange(self, request: tuple[int, int], body: bytes) -> BrokerAnswer:
        client = _CLIENT.encode()
        head = struct.pack(f">hhih{len(client)}s", *request, 0, len(client), client)
        message = head + body
        try:
            self._socket.sendall(struct.pack(">i", len(message)) + message)
            (size,) = struct.unpack(">i", self._receive(4))
            answer = BrokerAnswer(self._receive(size))
        except OSError as error:
            raise self._away(error) from error
        answer.number("i")
        return answer

    def _receive(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            part = self._socket.recv(size - len(content))
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            content += part
        return content

    def _log_in(self) -> None:
        mechanism = self._options.get("sasl.mechanism") or self._options.get("sasl.mechanisms", "")
        user = self._options.get("sasl.username", "")
        password = self._options.get("sasl.password", "")
        if mechanism != "PLAIN" and mechanism not in _HASHES:
            raise _unsupported("sasl.mechanism", mechanism, ("PLAIN", *_HASHES))
        name = mechanism.encode()
        code = self._exchange(_HANDSHAKE, struct.pack(">h", len(name)) + name).number("h")
        if code:
            raise KafkaRefused(self._servers, f"{self._broker} does not know {mechanism}")
        if mechanism == "PLAIN":
            self._authenticate(f"\0{user}\0{password}".encode())
        else:
            self._scram(_HASHES[mechanism], user, password)

    def _scram(self, digest: str, user: str, password: str) -> None:
        """Log in by SCRAM (RFC 5802), without channel binding."""
        name = user.replace("=", "=3D").replace(",", "=2C")
        first = f"n={name},r={secrets.token_urlsafe(24)}"
        challenge = self._authenticate(f"n,,{first}".encode()).decode()
        asked = dict(part.split("=", 1) for part in challenge.split(","))
        salt = base64.b64decode(asked["s"])
        rounds = int(asked["i"])
        salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, rounds)
        key = hmac.digest(salted, b"Client Key", digest)
        final = f"c=biws,r={asked['r']}"
        signed = f"{first},{challenge},{final}".encode()
        signature = hmac.digest(hashlib.new(digest, key).digest(), signed, digest)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self._authenticate(f"{final},p={base64.b64encode(proof).decode()}".encode())

    def _authenticate(self, content: bytes) -> bytes:
        body = struct.pack(">i", len(content)) + content
        answer = self._exchange(_AUTHENTICATE, body)
        code = answer.number("h")
        reason = answer.raw(max(0, answer.number("h"))).decode(errors="replace")
        if code:
            raise KafkaRefused(self._servers, f"{self._broker}: {reason or 'wrong credentials'}")
        return answer.raw(max(0, answer.number("i")))

    def _away(self, error: OSError) -> KafkaUnavailable:
        return KafkaUnavailable(self._servers, _TIMEOUT_S, f"broker {self._broker}: {error}")


def _plain(options: Mapping[str, str | int | float | bool | SecretStr]) -> dict[str, str]:
    return {
        name: value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        for name, value in options.items()
    }


def _tls(options: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=options.get("ssl.ca.location"), cadata=options.get("ssl.ca.pem")
    )
    if options.get("ssl.endpoint.identification.algorithm", "https") == "none":
        context.check_hostname = False
    if options.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate := options.get("ssl.certificate.location"):
        key = options.get("ssl.key.location")
        password = options.get("ssl.key.password")
        context.load_cert_chain(certificate, key, password)
    return context


def _unsupported(option: str, value: str, supported: tuple[str, ...]) -> SettingsRejected:
    names = ", ".join(supported)
    reason = f"{option} {value!r} is not among those by which transactions can be ended ({names})"
    return SettingsRejected("SEAMLESSFLOW_KAFKA__OPTIONS", reason)
