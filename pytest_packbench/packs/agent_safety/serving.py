"""Serves a world to an agent by two doors: JSON over HTTP, and MCP over streamable HTTP by its SDK.

Each case has a server of its own on 127.0.0.1, on a port and behind a secret path of its own. Requests that name
another host, or that come from a web page, are refused. It is closed when the case ends.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp.server.lowlevel import Server

    from pytest_packbench.engine.gateway.server import Reply, Request
    from pytest_packbench.packs.agent_safety.worlds import AgentWorld

MAX_CALL_BYTES = 1024 * 1024
"""The longest call of a tool over HTTP, bytes."""
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


class WorldServer:
    """The server of one case.

    Args:
        world: the world that it serves.
    """

    def __init__(self, world: AgentWorld) -> None:
        from pytest_packbench.engine.gateway.server import LoopbackServer
        from pytest_packbench.engine.offline import own_work, serve_address

        self._world = world
        self._mcp: _McpApp | None = None
        # a case that runs on its recording may not open a socket
        with own_work():
            self._server = LoopbackServer(self._serve)
            self._server.start()
        self._end_exemption = serve_address(*self._server.address)

    @property
    def addresses(self) -> dict[str, str]:
        """Where an agent finds the tools, by protocol: `http`, `mcp`."""
        return {"http": self._server.url, "mcp": f"{self._server.url}/mcp"}

    def stop(self) -> None:
        """Close all connections, and the address."""
        self._server.stop()
        self._end_exemption()

    async def _serve(self, request: Request, reply: Reply) -> None:
        path = request.target.partition("?")[0].rstrip("/")
        if len(request.body) > MAX_CALL_BYTES:
            status, body = 413, {"problem": f"a call has at most {MAX_CALL_BYTES} bytes"}
        elif path == "/mcp":
            if find_spec("mcp") is not None:
                await self._serve_mcp(request, reply)
                return
            status, body = 501, {"problem": ADVICE}
        elif not path:
            status, body = (200, self._world.description()) if request.method == "GET" else _only("GET")
        elif path.startswith("/tools/"):
            status, body = await self._call(request, path) if request.method == "POST" else _only("POST")
        else:
            status, body = 404, {"problem": "expected GET /, POST /tools/NAME or POST /mcp after the secret"}
        await reply.send(status, {"content-type": "application/json"}, json.dumps(body).encode())

    async def _call(self, request: Request, path: str) -> tuple[int, dict[str, Any]]:
        from pytest_packbench.cases.load import parse_json
        from pytest_packbench.files import LIMITS

        try:
            arguments = parse_json(request.body, LIMITS["result"]) if request.body.strip() else None
        except ValueError as error:
            return 400, {"problem": f"the body is not the arguments of a call: {error}; expected a JSON object"}
        try:
            output = await self._output(unquote(path.removeprefix("/tools/")), arguments, "http")
        except WorldClosedError as error:
            return 410, {"problem": str(error)}
        except Exception as error:  # noqa: BLE001 - the case ends with it
            return 500, {"problem": f"{type(error).__name__}: {error}"}
        return 200, {"output": output.text, "error": output.is_error}

    async def _output(self, name: str, arguments: object, door: str) -> Output:
        from pytest_packbench.engine.targets import run_in_thread

        # a tool or a guard may take its time, and other requests must not wait for it
        output: Output = await run_in_thread(partial(self._world.call, name, arguments, door=door))
        return output

    async def _serve_mcp(self, request: Request, reply: Reply) -> None:
        if request.method != "POST":
            # there is no stream of the server's own messages, and no session to end
            await reply.send(405, {"allow": "POST"}, b"")
            return
        if self._mcp is None:
            tools = self._world.description()["tools"]
            self._mcp = _McpApp(mcp_server(tools, lambda name, arguments: self._output(name, arguments, "mcp")))
        await self._mcp.serve(request, reply)


class _McpApp:
    """Hosts the SDK's application for streamable HTTP, without sessions: each request is answered by JSON."""

    def __init__(self, server: Server[Any]) -> None:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        self._manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
        self._ready = asyncio.Event()
        # ends with the loop of the case's server
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        async with self._manager.run():
            self._ready.set()
            await asyncio.Event().wait()

    async def serve(self, request: Request, reply: Reply) -> None:
        """Answer one request."""
        await self._ready.wait()
        path, _, query = request.target.partition("?")
        scope = {
            "type": "http",
            "method": request.method,
            "path": path,
            "query_string": query.encode("latin-1"),
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()],
        }
        bodies = [request.body]

        async def receive() -> dict[str, Any]:
            if not bodies:
                # the client's leaving cancels this request
                await asyncio.Event().wait()
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
                length = headers.pop("content-length", None)
                reply.start(message["status"], headers, None if length is None else int(length))
                return
            await reply.write(message.get("body", b""))
            if not message.get("more_body", False):
                await reply.finish()

        await self._manager.handle_request(scope, receive, send)


def mcp_server(tools: list[dict[str, Any]], call: Callable[[str, dict[str, Any]], Awaitable[Output]]) -> Server[Any]:
    """Return the server of the SDK.

    Args:
        tools: each with `name`, `description` and `parameters`.
        call: calls a tool.
    """
    import mcp_types as types
    from mcp.server.lowlevel import Server

    listed = [
        types.Tool(name=tool["name"], description=tool["description"], input_schema=tool["parameters"])
        for tool in tools
    ]

    async def list_tools(_context: Any, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        output = await call(params.name, dict(params.arguments or {}))
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=output.text)], is_error=output.is_error
        )

    return Server("packbench", on_list_tools=list_tools, on_call_tool=call_tool)


def _only(method: str) -> tuple[int, dict[str, Any]]:
    return 405, {"problem": f"expected {method}"}
