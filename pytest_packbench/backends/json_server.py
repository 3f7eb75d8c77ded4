"""The backend `json_server`: a server that gets the text of the last message as JSON and answers with JSON.

It answers the requests of guards over HTTP, so that they are counted, recorded and replayed like calls of models.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from pytest_packbench.backends import BackendUnusable
from pytest_packbench.backends.client import CONNECT_S, check_url
from pytest_packbench.backends.errors import ErrorFactory
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.request import ModelAnswer
from pytest_packbench.model.strict_json import NUMBERS

if TYPE_CHECKING:
    from pytest_packbench.backends import BackendOptions
    from pytest_packbench.model.request import ModelRequest

_MAX_BYTES = 2**20
_FIRST_NO_SUCCESS = 300


class JsonServer:
    """Sends one POST per request, without redirects and without proxies from the environment.

    Attributes:
        name: the backend's name.
        model: the name of what is asked, for records.
        temperature: None: it has none.
    """

    name = "json_server"
    temperature = None

    def __init__(self, options: BackendOptions) -> None:
        try:
            import httpx2
        except ImportError:
            raise BackendUnusable(
                "a guard over HTTP needs the package httpx2: pip install 'pytest-packbench[http]'"
            ) from None
        self.model = options.model
        self._http = httpx2
        self._url = check_url(options.base_url, name=self.name)
        self._timeout_s = options.timeout_s
        self._errors = ErrorFactory(options.model, options.redactor or Redactor(os.environ))
        timeout = httpx2.Timeout(options.timeout_s, connect=min(CONNECT_S, options.timeout_s))
        self._client = httpx2.AsyncClient(timeout=timeout, trust_env=False)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request.

        Raises:
            BackendError: there is no answer, or it is no JSON.
        """
        text = request.messages[-1]["content"]
        http = self._http
        with self._errors.sending(self._timeout_s, late=http.TimeoutException, lost=http.TransportError):
            response = await self._client.post(
                self._url, content=text.encode(), headers={"content-type": "application/json"}
            )
        if response.status_code >= _FIRST_NO_SUCCESS:
            raise self._errors.of_status(response.status_code, response.text)
        return ModelAnswer(content=self._value(response.content))

    def _value(self, content: bytes) -> Any:
        if len(content) > _MAX_BYTES:
            raise self._errors.bad_response(ValueError(f"an answer longer than {_MAX_BYTES // 2**20} MiB"), None)
        try:
            return json.loads(content, **NUMBERS)
        except (ValueError, RecursionError) as error:
            raise self._errors.bad_response(error, None) from None

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()
