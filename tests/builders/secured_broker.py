"""A broker that asks its clients for a password and lets each user do only what an ACL allows."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.broker.broker import Broker
from infra.ports import HOST, free_port
from infra.settings import KafkaSettings

USERS = {"owner": "right", "guest": "right", "visitor": "right"}
"""Passwords by user. The owner may do everything, the guest nothing, the visitor as tests say."""


@contextmanager
def secured_broker(directory: Path) -> Iterator[KafkaSettings]:
    """Yield the address at which a password is asked for."""
    plain, secured, controller = free_port(), free_port(), free_port()
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    properties: dict[str, str | int] = {
        "listeners": f"PLAINTEXT://{HOST}:{plain},SECURED://{HOST}:{secured},"
        f"CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{plain},SECURED://{HOST}:{secured}",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        "SECURED:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secured.plain.sasl.jaas.config": f"{module} required {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # The broker's own connections have no password.
        "super.users": "User:ANONYMOUS;User:owner",
    }
    with Broker(directory, plain, short_lived=True, properties=properties):
        yield KafkaSettings(bootstrap_servers=f"{HOST}:{secured}", wait_s=30)


def as_user(kafka: KafkaSettings, user: str, password: str) -> KafkaSettings:
    """Return the settings with which a client logs in."""
    options: dict[str, str | int | float | bool] = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }
    return kafka.model_copy(update={"options": options})
