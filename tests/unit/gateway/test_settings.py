"""Settings of the gateway that depend on each other, and keys that can be sent."""

import pytest
from pydantic import SecretStr, ValidationError

from seamlessflow.producers.gateway.settings import GatewaySection

SECRET = SecretStr("sixteen letters.")


def test_a_command_expires_before_its_client_gets_504() -> None:
    made = GatewaySection(secret=SECRET)

    assert made.command_expiry_s < made.command_timeout_s
    with pytest.raises(ValidationError, match=r"gateway\.command_expiry_s \(10\) must be below"):
        GatewaySection(secret=SECRET, command_timeout_s=10)


@pytest.mark.parametrize(
    "key", ["geheim\n", " geheim", "geheim\r\n", "a\nb", "a\x00b", "schlüssel", "\t"]
)
def test_a_key_that_no_header_carries_is_refused_and_not_shown(key: str) -> None:
    for more in ({"admin_key": SecretStr(key)}, {"api_keys": {"ci": SecretStr(key)}}):
        with pytest.raises(ValidationError, match="no HTTP header carries it") as refusal:
            GatewaySection.model_validate({"secret": SECRET, **more})
        assert not key.strip() or key not in str(refusal.value)


@pytest.mark.parametrize("key", ["key", "a b", "!~=/+._-", "x" * 4096])
def test_a_key_that_a_header_carries_is_taken(key: str) -> None:
    made = GatewaySection(secret=SECRET, admin_key=SecretStr(key))

    assert made.admin_key == SecretStr(key)
