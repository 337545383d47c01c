"""HTTP calls of tests: each over a connection of its own, with the time of a busy machine.

They share what they trust. Without that each call reads the certificates of its machine again,
which takes longer than most calls to a gateway.
"""

from functools import partial

import httpx

from tests.waiting import PATIENCE_S

_TRUSTED = httpx.create_ssl_context()

get = partial(httpx.get, timeout=PATIENCE_S, verify=_TRUSTED)
post = partial(httpx.post, timeout=PATIENCE_S, verify=_TRUSTED)
request = partial(httpx.request, timeout=PATIENCE_S, verify=_TRUSTED)
stream = partial(httpx.stream, timeout=PATIENCE_S, verify=_TRUSTED)
