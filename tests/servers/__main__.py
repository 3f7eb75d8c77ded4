"""A model's server as a process of its own, for benchmarks and for tests that kill it.

`python -m tests.servers` answers every text with `ok` and every JSON with `{}`; with `--tariff FOLDER` it answers a
tariff suite from its cassettes. The first line of standard output is the URL: for openai add `/v1`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tests.servers.fake import serve
from tests.servers.tariff import tariff_handler
from tests.servers.wire import answer_with


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    parser.add_argument("--latency", type=float, default=0.0, metavar="SECONDS", help="between request and answer")
    parser.add_argument("--tariff", type=Path, metavar="FOLDER", help="the suite whose cassettes are the answers")
    parser.add_argument("--json", default="{}", help="what is answered where JSON is asked for")
    given = parser.parse_args()
    if given.tariff:
        serve(tariff_handler(given.tariff), latency_s=given.latency)
    else:
        answer = json.loads(given.json)
        serve(answer_with(lambda asked: answer if asked.wants_json else "ok"), latency_s=given.latency)


if __name__ == "__main__":
    main()
