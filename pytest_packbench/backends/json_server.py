"""The backend `json_server`: a server that gets the text of the last message as JSON and answers with JSON.

It answers the requests of guards over HTTP, so that they are counted, recorded and replayed like calls of models.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_packbench.backends.client import HttpBackend, UnreadableResponse, parse_json_text
from pytest_packbench.model.request import ModelAnswer

if TYPE_CHECKING:
    from pytest_packbench.backends import BackendOptions
    from pytest_packbench.model.request import ModelRequest, Usage

_MAX_BYTES = 2**20


class JsonServer(HttpBackend):
    """Asks a server without proxies from the environment; the model is the name of what is asked, for records."""

    name = "json_server"
    extra = "http"

    def __init__(self, options: BackendOptions) -> None:
        super().__init__(options, options.base_url, label=options.model, trust_env=False)

    @property
    def temperature(self) -> None:
        """It has none."""

    async def _ask(self, request: ModelRequest) -> Any:
        text = request.messages[-1]["content"]
        response = await self._post(content=text, headers={"content-type": "application/json"})
        content = response.content
        if len(content) > _MAX_BYTES:
            raise UnreadableResponse(f"an answer longer than {_MAX_BYTES // 2**20} MiB")
        try:
            return parse_json_text(content.decode(json.detect_encoding(content)))
        except UnicodeDecodeError as error:
            raise UnreadableResponse(f"expected JSON ({error})") from None

    def _answer(self, data: Any, request: ModelRequest, usage: Usage) -> ModelAnswer:  # noqa: ARG002 - any JSON is an answer
        return ModelAnswer(content=data)
