"""Record a call, and replay it as often as it is asked for: `python -m benchmarks.calls NUMBER`."""

from __future__ import annotations

import http.client
import json
import sys
from urllib.parse import urlsplit

from pytest_packbench.engine.gateway import Gateway
from pytest_packbench.model.recording import GatewayExchange
from tests.servers.fake import FakeServer
from tests.servers.wire import openai_reply

BODY = json.dumps({"model": "fake", "messages": [{"role": "user", "content": "word " * 400}]})


def post(base_url: str, calls: int) -> None:
    """Make calls with a prompt of 2 KB."""
    parts = urlsplit(base_url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    for _ in range(calls):
        connection.request("POST", f"{parts.path}/chat/completions", BODY, {"Content-Type": "application/json"})
        connection.getresponse().read()
    connection.close()


def main(calls: int) -> int:
    """Record a call; then make calls that the gateway replays; return 1 if it could not."""
    with FakeServer(lambda _: openai_reply("ok")) as server:
        forwarding = Gateway(offline=False, upstreams={"openai": f"{server.url}/v1"})
        forwarding.configure(record=True)
        forwarding.start()
        with (traffic := forwarding.open_case("one")).active():
            post(f"{forwarding.url}/openai/v1", 1)
        forwarding.stop()
    exchange = GatewayExchange.model_validate(traffic.calls[0].as_exchange())
    gateway = Gateway(offline=True)
    gateway.start()
    with (replayed := gateway.open_case("one", [exchange] * calls)).active():
        post(f"{gateway.url}/openai/v1", calls)
    replayed.finish()
    gateway.stop()
    return int(bool(replayed.mismatch))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
