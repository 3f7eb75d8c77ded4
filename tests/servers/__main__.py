"""A model's server as a process of its own, for benchmarks: every text is answered with `ok` and every JSON with `{}`.

The first line of standard output is the URL: for openai add `/v1`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import selectors
import threading

from tests.servers.fake import FakeServer
from tests.servers.wire import answer_with


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    parser.add_argument("--latency", type=float, default=0.0, metavar="SECONDS", help="between request and answer")
    # epoll counts in whole milliseconds: answers would come up to one late; select has room for 1,000 connections
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    handler = answer_with(lambda request: {} if request.wants_json else "ok")
    server = FakeServer(handler, latency_s=parser.parse_args().latency, record=False, loop=loop)
    with contextlib.suppress(KeyboardInterrupt), server:
        print(server.url, flush=True)  # noqa: T201 - whoever started the process reads it
        threading.Event().wait()


if __name__ == "__main__":
    main()
