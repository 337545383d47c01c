"""Settings for `seamlessflow share`: the section `share` in a run configuration."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, JsonValue, StringConstraints, model_validator

from seamlessflow.infra.settings import Section
from seamlessflow.infra.user_functions import UserFunctionName, refuse_unnamed

PublicKey = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""Public key (Ed25519) in hexadecimal digits."""


class ShareSection(Section):
    """Groups as text that a run gives to others, and takes from them."""

    sign_with: Path | None = Field(
        None,
        description="File with the private key that signs, as `seamlessflow share key` writes it; "
        "without it nothing is published",
    )
    signers: dict[str, PublicKey] = Field(
        {},
        description="Public keys of those whose groups are taken, each under a name that you "
        "choose; 64 hex digits, as `share key` prints them",
    )
    judge: UserFunctionName | None = Field(
        None,
        description="Your own function, module:function, that rewards what is taken: it gets task "
        "and text and returns a number. Without it nothing is taken",
    )
    functions: dict[UserFunctionName, dict[str, JsonValue]] = Field(
        {}, description="Settings for the judge: its keyword arguments, by module:function"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        refuse_unnamed(self.functions, [self.judge] if self.judge else [], "judge")
        names = {key: name for name, key in self.signers.items()}
        if len(names) < len(self.signers):
            raise ValueError("signers has a key under two names")
        return self
