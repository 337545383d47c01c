"""Settings of the gateway that depend on each other."""

import pytest
from pydantic import SecretStr, ValidationError

from producers.gateway.settings import GatewaySection

SECRET = SecretStr("sixteen letters.")


def test_a_command_expires_before_its_client_gets_504() -> None:
    made = GatewaySection(secret=SECRET)

    assert made.command_expiry_s < made.command_timeout_s
    with pytest.raises(ValidationError, match=r"gateway\.command_expiry_s \(10\) must be below"):
        GatewaySection(secret=SECRET, command_timeout_s=10)
