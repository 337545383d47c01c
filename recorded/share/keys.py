"""Keys (Ed25519) that sign shared groups: made, read and used only here.

A private key lies in a file that only its owner can read. It is never printed, and stands in no
error. A public key is 64 hexadecimal digits.
"""

import os
import stat
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from seamlessflow.infra.errors import SeamlessFlowError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_MOST_BYTES = 10_000


class KeyUnusable(SeamlessFlowError):
    """A private key's file that cannot be used."""

    lasting = True

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class SigningKey:
    """A private key. Its text shows the public one."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key().public_bytes_raw().hex()

    def __repr__(self) -> str:
        return f"SigningKey({self.public})"

    def sign(self, content: bytes) -> bytes:
        """Return the content's signature."""
        return self._key.sign(content)

    @classmethod
    def make(cls, path: Path) -> "SigningKey":
        """Write a new key to a new file that only its owner can read. Raises `KeyUnusable`."""
        key = Ed25519PrivateKey.generate()
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        try:
            opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(opened, "wb") as file:
                file.write(text)
        except FileExistsError:
            raise KeyUnusable(path, "is there, and a key is never replaced") from None
        except OSError as error:
            raise KeyUnusable(path, error.strerror or str(error)) from error
        return cls(key)

    @classmethod
    def read(cls, path: Path) -> "SigningKey":
        """Return a file's key. Raises `KeyUnusable`, also if others can read the file."""
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_mode & _OTHERS:
                    raise KeyUnusable(path, "others than its owner may read it: chmod 600")
                text = file.read(_MOST_BYTES)
        except OSError as error:
            raise KeyUnusable(path, error.strerror or str(error)) from error
        try:
            key = load_pem_private_key(text, password=None)
        except (ValueError, TypeError):  # without its message, which may quote the file
            key = None
        except Exception as error:  # cryptography has errors of its own for other algorithms
            raise KeyUnusable(path, f"has a key of another kind ({type(error).__name__})") from None
        if not isinstance(key, Ed25519PrivateKey):
            reason = "has no private key (Ed25519, PEM); `seamlessflow share key` writes such files"
            raise KeyUnusable(path, reason)
        return cls(key)


def is_signed(content: bytes, signature: bytes, public: str) -> bool:
    """Return True if a public key's signature on the content is right."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(signature, content)
    except (InvalidSignature, ValueError):  # no key of this curve either
        return False
    return True
