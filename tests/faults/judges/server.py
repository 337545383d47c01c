"""A small server of chat completions that judges, as a program: its one argument is its port.

Some of its answers are prose, and some ask for another try. The score follows from the question.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from zlib import crc32

WORK_S = 0.1
PROSE_EVERY, BUSY_EVERY = 11, 7
LEVELS = 5
_CALLS = count(1)


class Handler(BaseHTTPRequestHandler):
    """A call: one question, one answer."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer with a score, with prose, or with 429."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        time.sleep(WORK_S)
        number = next(_CALLS)
        question = asked["messages"][0]["content"]
        score = crc32(question.encode()) % LEVELS / (LEVELS - 1)
        text = "fine" if number % PROSE_EVERY == 0 else json.dumps({"score": score})
        usage = {"prompt_tokens": len(question), "completion_tokens": len(text)}
        body = json.dumps({"choices": [{"message": {"content": text}}], "usage": usage}).encode()
        self.send_response(429 if number % BUSY_EVERY == 0 else 200)
        self.send_header("retry-after", "0")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
