"""Which headers of a request decide on its answer, and what a recording keeps of them."""

from __future__ import annotations

import re
from fnmatch import filter as matching
from typing import TYPE_CHECKING

from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.model.redaction import REDACTED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

IGNORED = (
    # programs, libraries and their versions
    "user-agent",
    "*-user-agent",
    "x-stainless-*",
    "x-goog-api-client",
    "*-sdk-version",
    "sec-*",
    # tracing
    "traceparent",
    "tracestate",
    "*-trace",
    "*-trace-*",
    "baggage",
    "sentry-*",
    "b3",
    "x-b3-*",
    "x-datadog-*",
    "elastic-apm-*",
    "newrelic",
    "x-newrelic-*",
    "x-instana-*",
    "x-dynatrace*",
    "uber-*",
    "ot-tracer-*",
    "x-ot-span-context",
    "sw8*",
    "*trace-id",
    "*traceid",
    "*span-id",
    # one request, or one try of it
    "*request-id",
    "*correlation-id",
    "*idempotency-key",
    "*-call-id",
    "*-invocation-id",
    "amz-sdk-request",
    "*retry-count",
    "*retry-attempt",
    "*request-start",
    # what a client can read
    "accept*",
    # the connection and the form of the body
    "host",
    "connection",
    "keep-alive",
    "proxy-*",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "expect",
    "via",
    "forwarded",
    "x-forwarded-*",
    "content-length",
    "content-md5",
    "*-content-sha256",
    "*timeout",
    "cache-control",
    "pragma",
    # times
    "date",
    "*-date",
    "*-timestamp",
    # who pays, which differs between machines as keys do
    "openai-organization",
    "openai-project",
    "anthropic-workspace-id",
    "x-goog-user-project",
)
"""The headers of a request that do not decide on its answer, lower case; `*` is any text."""
SHOWN = ("anthropic-beta", "anthropic-version", "content-type", "openai-beta")
"""The headers whose values recordings keep in words."""
_DIGEST = "sha256:"
_BOUNDARY = re.compile(r"(?i);\s*boundary=(\"[^\"]*\"|[^;]*)")
# of the same key: which one is sent depends on the variable that is set
_KEYS = re.compile(r"^(authorization|(x-)?(goog-)?api-key)$")


def deciding(headers: Mapping[str, str], ignored: Iterable[str] = ()) -> dict[str, str]:
    """Return the headers of a request that decide on its answer, sorted.

    Args:
        headers: the headers, names in lower case.
        ignored: names of headers that do not, in addition to those that never do.
    """
    left_out = {name for pattern in (*IGNORED, *ignored) for name in matching(headers, pattern.lower())}
    kept = {
        _KEYS.sub("authorization_or_api-key", name): _BOUNDARY.sub("", headers[name])
        for name in headers.keys() - left_out
    }
    return dict(sorted(kept.items()))


def as_recorded(headers: Mapping[str, str], words: Collection[str] = ()) -> dict[str, str]:
    """Return headers with hashes instead of their values, except for those with these names, and for credentials."""
    return {
        name: value if name in words or value.startswith((_DIGEST, REDACTED)) else _DIGEST + canonical_sha256(value)
        for name, value in headers.items()
    }
