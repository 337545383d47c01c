"""Keys that sign shared groups, and their files."""

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from seamlessflow.recorded.share.keys import KeyUnusable, SigningKey, is_signed
from tests.builders.shared_groups import STRANGERS, THEIRS

CONTENT = b'{"a":1}'


def test_one_changed_byte_breaks_the_signature() -> None:
    signature = THEIRS.sign(CONTENT)
    assert is_signed(CONTENT, signature, THEIRS.public)
    for at in range(len(CONTENT)):
        changed = CONTENT[:at] + bytes([CONTENT[at] ^ 1]) + CONTENT[at + 1 :]
        assert not is_signed(changed, signature, THEIRS.public)
    assert not is_signed(CONTENT, signature[:-1] + b"\0", THEIRS.public)


@pytest.mark.parametrize("public", [STRANGERS.public, "", "00", "zz" * 32, "ff" * 32])
def test_another_key_did_not_sign(public: str) -> None:
    assert not is_signed(CONTENT, THEIRS.sign(CONTENT), public)


def test_a_new_key_is_read_by_its_owner_alone_and_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    made = SigningKey.make(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SigningKey.read(path).public == made.public
    assert is_signed(CONTENT, SigningKey.read(path).sign(CONTENT), made.public)
    with pytest.raises(KeyUnusable, match="never replaced"):
        SigningKey.make(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key.pem"
    SigningKey.make(path)
    path.chmod(mode)
    with pytest.raises(KeyUnusable, match="chmod 600"):
        SigningKey.read(path)


def test_what_is_no_key_is_refused_without_its_content(tmp_path: Path) -> None:
    other = X25519PrivateKey.generate()
    foreign = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for text in (b"", b"secret words", foreign):
        path = tmp_path / "key.pem"
        path.write_bytes(text)
        path.chmod(0o600)
        with pytest.raises(KeyUnusable, match=r"has no private key \(Ed25519") as refused:
            SigningKey.read(path)
        assert "secret words" not in str(refused.value)
    with pytest.raises(KeyUnusable, match="No such file"):
        SigningKey.read(tmp_path / "nowhere.pem")


def test_a_key_shows_its_public_part_alone() -> None:
    assert repr(THEIRS) == f"SigningKey({THEIRS.public})"
