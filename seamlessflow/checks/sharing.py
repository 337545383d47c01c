"""Checks of `seamlessflow share` before it reads or writes anything."""

from collections.abc import Iterator

from seamlessflow.checks.callables import Importing, NamedCallable
from seamlessflow.checks.check import pacing_faults
from seamlessflow.config import RunConfig
from seamlessflow.infra.faults import Fault
from seamlessflow.inspection.model_directory import incomplete, unrenderable
from seamlessflow.recorded.share.keys import KeyUnusable, SigningKey
from seamlessflow.trainer.credit import ONE_REWARD

JUDGE = ("share", "judge")
_KEY = ("share", "sign_with")


def before_publishing(config: RunConfig) -> Iterator[Fault]:
    """Yield all faults of publishing: no key, or one that cannot be used."""
    if config.share.sign_with is None:
        yield Fault(_KEY, "no key is named: nothing is published unsigned; `share key` makes one")
    yield from _key_faults(config)
    if config.pacing.issues:
        yield from pacing_faults(config.pacing)


def before_taking(config: RunConfig) -> Iterator[Fault]:
    """Yield all faults of taking: without a judge, signers and tasks nothing can be taken."""
    share = config.share
    named = []
    if share.judge is None:
        yield Fault(JUDGE, "no judge is named: nothing is taken without a judge of your own")
    else:
        settings = share.functions.get(share.judge, {})
        named = [NamedCallable(JUDGE, share.judge, ("task", "text"), settings)]
    with Importing(named, config.start_timeout_s) as importing:
        if not share.signers:
            yield Fault(("share", "signers"), "no signer is named, so no group could be taken")
        weighed = set(config.trainer.reward_weights)
        if weighed != set(ONE_REWARD):
            text = "its reward is named reward, and trainer.rewards weighs"
            yield Fault(JUDGE, f"{text} {', '.join(sorted(weighed))}")
        yield from _key_faults(config)
        yield from pacing_faults(config.pacing)
        if reason := incomplete(config.policy.model, with_weights=False):
            yield Fault(("policy", "model"), reason)
        elif reason := unrenderable(config.policy.model, config.policy.renderer):
            yield Fault(("policy", "renderer"), reason)
        yield from importing.faults()


def _key_faults(config: RunConfig) -> Iterator[Fault]:
    if config.share.sign_with is not None:
        try:
            SigningKey.read(config.share.sign_with)
        except KeyUnusable as error:
            yield Fault(_KEY, str(error))
