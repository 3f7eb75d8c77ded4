"""Serves a world to an agent by two doors: JSON over HTTP, and MCP over streamable HTTP by its SDK.

Each case has a server of its own on 127.0.0.1, on a port and behind a secret path of its own. Requests that name
another host, or that come from a web page, are refused. It is closed when the case ends.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp.server.lowlevel import Server

    from pytest_packbench.engine.gateway.server import Reply, Request
    from pytest_packbench.packs.agent_safety.worlds import AgentWorld

ADVICE = "MCP needs its SDK: pip install 'pytest-packbench[mcp]'"


class Output(NamedTuple):
    """What an agent reads of a call.

    Attributes:
        text: the output of the tool, or its error, as the guards left it.
        is_error: whether the tool failed, doesn't exist, or a guard denied the call.
    """

    text: str
    is_error: bool = False


class WorldClosedError(RuntimeError):
    """A tool was called after the end of its case."""


@contextmanager
def served(world: AgentWorld) -> Iterator[dict[str, str]]:
    """Serve a world; yield where an agent finds its tools, by protocol: `http`, `mcp`."""
    from pytest_packbench.engine.gateway.server import LoopbackServer
    from pytest_packbench.engine.offline import own_work, serve_address

    # a case that runs on its recording may not open a socket
    with own_work():
        server = LoopbackServer(partial(_serve, world))
        server.start()
    end_exemption = serve_address(*server.address)
    try:
        yield {"http": server.url, "mcp": f"{server.url}/mcp"}
    finally:
        server.stop()
        end_exemption()


async def _serve(world: AgentWorld, request: Request, reply: Reply) -> None:
    path = request.target.partition("?")[0].rstrip("/")
    expected = "POST" if path else "GET"
    if path not in {"", "/mcp"} and not path.startswith("/tools/"):
        status, body = 404, {"problem": "expected GET /, POST /tools/NAME or POST /mcp after the secret"}
    elif path == "/mcp" and find_spec("mcp") is None:
        status, body = 501, {"problem": ADVICE}
    elif request.method != expected:
        # over MCP there is no stream of the server's own messages, and no session to end
        status, body = 405, {"problem": f"expected {expected}"}
    elif path == "/mcp":
        await _serve_mcp(world, request, reply)
        return
    elif path:
        status, body = await _serve_call(world, unquote(path.removeprefix("/tools/")), request.body)
    else:
        status, body = 200, world.description()
    await reply.send(status, {"content-type": "application/json"}, json.dumps(body).encode())


async def _serve_call(world: AgentWorld, name: str, arguments: bytes) -> tuple[int, dict[str, Any]]:
    try:
        output = await _call(world, name, arguments, "http")
    except WorldClosedError as error:
        return 410, {"problem": str(error)}
    except Exception as error:  # noqa: BLE001 - the case ends with it
        return 500, {"problem": f"{type(error).__name__}: {error}"}
    return 200, {"output": output.text, "error": output.is_error}


async def _call(world: AgentWorld, name: str, arguments: object, door: str) -> Output:
    from pytest_packbench.engine.targets import run_in_thread

    # a tool or a guard may take its time, and other requests must not wait for it
    output: Output = await run_in_thread(partial(world.call, name, arguments, door=door))
    return output


async def _serve_mcp(world: AgentWorld, request: Request, reply: Reply) -> None:
    """Answer a request over MCP as its SDK does, without sessions: by JSON."""
    import httpx2  # comes with the SDK
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    manager = StreamableHTTPSessionManager(_mcp_server(world), json_response=True, stateless=True)
    url = f"http://{request.headers['host']}/mcp"
    asked = httpx2.Request(request.method, url, headers=request.headers, content=request.body)
    async with manager.run():
        answer = await httpx2.ASGITransport(manager.handle_request).handle_async_request(asked)
    headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
    await reply.send(answer.status_code, headers, await answer.aread())


def _mcp_server(world: AgentWorld) -> Server[Any]:
    """Return the server of the SDK, with the tools of a world."""
    import mcp_types as types
    from mcp.server.lowlevel import Server

    tools = [
        types.Tool(name=tool.name, description=tool.description, input_schema=tool.parameters) for tool in world.tools
    ]

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        output = await _call(world, params.name, params.arguments, "mcp")
        content = types.TextContent(type="text", text=output.text)
        return types.CallToolResult(content=[content], is_error=output.is_error)

    return Server("packbench", on_list_tools=list_tools, on_call_tool=call_tool)
