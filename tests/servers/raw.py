"""A server on loopback that sends bytes as a test writes them: streams in pieces, cuts, old versions of HTTP."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

CLOSE = b""
"""Ends the connection."""


def head(*lines: str, status: str = "200 OK", version: str = "1.1") -> bytes:
    return "\r\n".join([f"HTTP/{version} {status}", *lines, "", ""]).encode()


def chunk(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece)


def chunked(content_type: str, pieces: Sequence[bytes]) -> list[bytes]:
    """A whole answer, a chunk for each piece."""
    return [
        head(f"content-type: {content_type}", "transfer-encoding: chunked"),
        *map(chunk, pieces),
        b"0\r\n\r\n",
    ]


class RawServer:
    """Answers each request by what a script returns for it: bytes, pauses in seconds, `CLOSE`.

    Attributes:
        url: with the scheme.
        requests: the requests, head and body.
        connections: how many were opened.
        lost: set when a client has left in the middle of an answer.
    """

    def __init__(self, script: Callable[[bytes], Sequence[bytes | float]], tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.lost = threading.Event()
        self._script = script
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._converse, "127.0.0.1", 0, ssl=self._tls)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(10)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http{'s' if self._tls else ''}://{'localhost' if self._tls else '127.0.0.1'}:{port}"
        return self

    def __exit__(self, *_raised: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # the transports tell their protocols in the loop's next rounds
        await asyncio.sleep(0.01)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                top = await reader.readuntil(b"\r\n\r\n")
                fields = dict(line.lower().split(b": ", 1) for line in top.split(b"\r\n")[1:-2])
                request = top + await reader.readexactly(int(fields.get(b"content-length", b"0")))
                self.requests.append(request)
                for step in self._script(request):
                    if isinstance(step, float):
                        await asyncio.sleep(step)
                    elif step == CLOSE:
                        return
                    else:
                        writer.write(step)
                        await writer.drain()
        except asyncio.IncompleteReadError:
            pass
        except ConnectionError:
            self.lost.set()
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            writer.close()
