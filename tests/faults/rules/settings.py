"""Settings with a rule of each kind: samples, stops, what is trained, what is stored."""

from tests.faults.faulty_run import Changes

GROUP_SIZE, KEEP, LEAST = 4, 2, 2
PERIOD, TIMES = 16, 2
USES = 2
POLICY = "policy"
SAMPLER, TERMS, CONTROL = "vade", "by_success", "repetition"

RULES: Changes = {
    "run": {"group_size": GROUP_SIZE, "policy": POLICY},
    "pacing": {
        "sampler": {"name": SAMPLER},
        "terms": {"name": TERMS, "least": LEAST, "exempt": 0.25},
    },
    "agents": {"callable": "tests.faults.rules.agent:run"},
    "rollout": {
        "control": {
            "name": CONTROL,
            "settings": {"period": PERIOD, "times": TIMES, "ends": "session"},
            "exempt": 0.25,
        }
    },
    "trainer": {
        "selection": {"name": "balanced", "keep": KEEP},
        "masks": {"high_entropy_turns": {"keep": 0.5}},
        "filters": {"zero_variance": "count", "untrainable": "drop"},
        "replay": {"name": "rescue", "pools": {"own": {"uses": USES}}},
        "loss": {"surrogate": "ppo_clip", "correction": "tis"},
    },
}
