"""Credentials in requests: what they are called in a query, a header or a JSON body, and requests without them."""

from __future__ import annotations

import re
from typing import Any

from pytest_packbench.model.redaction import REDACTED

# whatever it is called there, what is asked decides on the answer
_CONTENT = re.compile(r"(?i)contents|input|instructions|messages|prompt|system(_?instruction)?")
_NAME = re.compile(
    # a token of a page or of a vocabulary is no secret; nor is the name of OpenAI's cache
    r"(?i)(?!(.*[-_])?(next|prev|previous|page|continuation|bos|eos|pad|unk|sep|cls|mask|stop|start|end)[-_]?token$"
    r"|prompt_cache_key$)(.*[-_])?(key|token|sig|signature|secrets?|auth|oauth2?|authentication|authorization|pat|"
    r"pass|passwd|pwd|passwords?|passcode|passphrase|headers|credentials?|cookies?|bearer|jwt|assertion|connection_string|service_account|api_?keys?|client_?secret|"
    r"(access|api|auth|bearer|id|refresh|session)_?tokens?|(access|secret)_?keys?)([-_](value|string|header|config|json|pem|b64|\d+))?"
)
# the key of a filter, a cache or a route
_ANY_KEY = re.compile(
    r"(?i)(?!.*(api|access|account|auth|client|master|private|secret|service|signing|subscription)).*key"
)
_PLAIN = re.compile(
    r"(?i)accept(-.+)?|content-.+|user-agent|host|cache-control|connection|origin|referer|date|type|scheme|name"
)
# their members are named by the user
_SCHEMAS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentRequired", "dependentSchemas"}
)
_EXAMPLES = frozenset({"const", "default", "enum", "example", "examples", "input_examples"})
# a login, and the parameters of a query
_IN_URL = re.compile(r"((?<=://)|[?&]([\w.-]{1,60})=)([^\s/?#@&]+)(?(2)|(?=@))")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# no word of settings, such as `interactive`
_WORD = re.compile(r"(?<!\S)(?:\S*[^A-Za-z\s]\S*|\S{16,})")
_TOKEN = re.compile(r"(?=\S*[0-9])(?=\S*[A-Za-z])[^\s;,=:]{16,}")


def is_secret_name(name: str) -> bool:
    """Whether what is called so may be a credential."""
    return _NAME.fullmatch(_HUMP.sub("_", name)) is not None


def is_credential(name: str, value: object) -> bool:
    """Whether a value is a credential, which decides on no answer; what is only called a key is one by its form."""
    return is_secret_name(name) and (not _ANY_KEY.fullmatch(name) or _TOKEN.fullmatch(str(value)) is not None)


def without_secrets(body: Any) -> Any:
    """Return the JSON body of a request as it may be shown: `[redacted]` replaces its credentials."""
    return _hide(body, "", [])


def without_credentials(body: Any, found: list[str]) -> Any:
    """Return the JSON body of a request without its credentials; what is asked stays as it is.

    Args:
        body: the body.
        found: gets texts that are secret wherever they occur.
    """
    if not isinstance(body, dict):
        return body
    return {name: item if _CONTENT.fullmatch(name) else _hide(item, name, found) for name, item in body.items()}


def _hide(value: Any, name: str, found: list[str], *, is_closed: bool = False) -> Any:
    """Return a JSON value without credentials.

    Args:
        value: what to look at.
        name: its key.
        found: gets the texts that are secret wherever they occur.
        is_closed: whether it is part of headers or credentials, of which only plain members are kept.
    """
    is_named = isinstance(value, str | dict | list) and is_credential(name, value)
    is_closed = (is_closed or is_named) and not _PLAIN.fullmatch(name)
    if isinstance(value, list):
        return [_hide(item, "", found, is_closed=is_closed) for item in value]
    if isinstance(value, dict):
        called = (value.get(key) for key in ("name", "key"))
        pairs = (text for text in called if isinstance(text, str) and is_secret_name(text))
        names = {key: key for key in value} | {"value": next(pairs, "value")}
        # a schema describes a member, whatever it is called
        names |= {key: "" for key, item in value.items() if name in _SCHEMAS and isinstance(item, dict | list)}
        return {
            key: item if key in _EXAMPLES and not is_closed else _hide(item, names[key], found, is_closed=is_closed)
            for key, item in value.items()
        }
    if is_closed and value:
        found += _TOKEN.findall(str(value)) + (_WORD.findall(value) if is_named else [])
        # a passphrase of several words
        found += [value] if is_named and len(value.split()) > 1 else []
        return REDACTED
    if isinstance(value, str):
        return _IN_URL.sub(lambda match: match[1] + _hide(match[3], match[2] or "password", found), value)
    return value
