"""The seed of all randomness in a run of the tests; a failure is repeated with it."""

import os
import random

VARIABLE = "SEAMLESSFLOW_TEST_SEED"
seed = int(os.environ.get(VARIABLE) or random.SystemRandom().randrange(2**32))
# Processes beside this one that run tests inherit it, and so collect the same tests.
os.environ[VARIABLE] = str(seed)
