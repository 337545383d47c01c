"""An agent behind OpenEnv's capture proxy: `python openenv_capture.py ORDERS`.

ORDERS is JSON: `base_url` and `probed_url` of two sessions, whose keys are in SESSION_KEY and
PROBED_KEY; `question` and `tool`. The proxy asks for `return_token_ids` and keeps what it gets.
Prints what OpenEnv's own probe says of the endpoint, and the sequences that it would train.
"""

import json
import os
import sys

from openenv.core.harness.capture import to_training_trace, validate_llm
from openenv.core.harness.capture.export import export_session
from openenv.core.harness.capture.server import create_app
from tool_agent import converse, served


def main(orders):
    """Probe the endpoint, then let the agent work."""
    report = validate_llm(orders["probed_url"], "policy", api_key=os.environ["PROBED_KEY"])
    app = create_app(
        llm_url=orders["base_url"],
        model="policy",
        api_key=os.environ["SESSION_KEY"],
        capture_level=report.capture_level,
        max_output_tokens=None,
    )
    session = app.state.registry.create("agent")
    with served(app) as url:
        converse(f"{url}/v1", session.session_id, orders["question"], orders["tool"])
    document = export_session(session, include_messages=True)
    trace = to_training_trace(session.graph, document)
    shown = {
        "level": report.capture_level,
        "findings": report.findings,
        "fixes": report.param_fixes,
        "validation": document["validation"],
        "trainable": document["trainable"],
        "turns": len(trace.turns),
        "sequences": [
            {name: row[name] for name in ("input_ids", "loss_mask", "logprobs")}
            for row in document["sequences"]
        ],
    }
    print(json.dumps(shown))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
