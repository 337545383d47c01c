"""The seed of all randomness in a run of the tests; a failure is repeated with it."""

import os
import random

seed = int(os.environ.get("SEAMLESSFLOW_TEST_SEED") or random.SystemRandom().randrange(2**32))
