"""The gateway: a loopback endpoint between a target's own model clients and their providers.

It records and replays each case's calls, counts them, and obeys the run's caps. In fixture mode it can't forward
anything. This module knows whether a process needs one, starts it, and sets the variables that lead clients to it;
nothing else of the gateway is imported before that.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from pytest_packbench.engine.gateway.exchanges import CaseTraffic, RecordedCall
from pytest_packbench.engine.gateway.service import Gateway
from pytest_packbench.engine.offline import tell_late
from pytest_packbench.model.request import ROUTE, GatewayRoute
from pytest_packbench.model.run import CHECK_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.model.recording import GatewayExchange
    from pytest_packbench.model.run import Mode


__all__ = ["CaseTraffic", "Gateway", "RecordedCall"]


_HERE = "127.0.0.1,localhost"
# by the first word, the tool's
_OFF = {
    "DD_TRACE_ENABLED": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGFUSE_TRACING_ENABLED": "false",
    "LANGSMITH_TRACING_V2": "false",
    "LOGFIRE_SEND_TO_LOGFIRE": "false",
    "OTEL_SDK_DISABLED": "true",
    "SENTRY_DSN": "",
}
# the port "discard", on which nothing listens
_DEAD_PROXY = "http://127.0.0.1:9"


class Serving:
    """Starts and stops the gateway of this process, and opens its cases.

    Args:
        mode: how model calls are answered. In fixture mode nothing is forwarded.
        here: whether it serves in this process; the controller of xdist makes no calls in live and record mode.
        folders: the folders of the suites.

    Attributes:
        gateway: the gateway, once it serves in this process.
        upstreams: the addresses to which calls of each provider are forwarded, where a variable of it is set,
            each with its proxy.
        off: the variables that switch off the tracing that the environment has switched on.
    """

    def __init__(self, mode: Mode, *, here: bool = True, folders: Sequence[Path] = ()) -> None:
        self.gateway: Gateway | None = None
        self.upstreams: dict[str, str] = {}
        self.off: dict[str, str] = {}
        self._mode = mode
        self._is_here = here
        self._folders = folders
        self._undo = ExitStack()
        self._elsewhere: dict[str, str | None] = {}

    def start(self) -> None:
        """Serve, and set the variables that clients read; clients that exist already do not know the address.

        Raises:
            ValueError: the variables lead to different addresses of one provider.
        """
        if self.gateway is not None:
            return
        from pytest_packbench.backends import VARIABLE, originals, replace_variables
        from pytest_packbench.engine.gateway.protocols import PROVIDERS, conflict_in, named_upstreams, upstreams_of

        before = originals(os.environ)
        offline = self._mode == "fixture"
        if not offline and (problem := conflict_in(before)):
            raise ValueError(problem)
        # now: what conftest.py files and targets set later changes nothing
        if not offline:
            from pytest_packbench.engine.gateway.proxies import proxies_of_environment, route_text

            proxies, named = proxies_of_environment(), named_upstreams(before)
            self.upstreams = {name: address + route_text(address, proxies) for name, address in named.items()}
        if not self._is_here:
            return
        from pytest_packbench.engine.gateway.stamps import install, stamped
        from pytest_packbench.engine.offline import own_work, serve_address

        # cases that run at once may not open a socket
        with own_work():
            self.gateway = gateway = Gateway(offline=offline, upstreams=upstreams_of(before), folders=self._folders)
            gateway.checks = CHECK_FOLDER in os.environ
            # as long as the gateway serves, calls say whose they are
            stamping = self._undo.enter_context(ExitStack())
            self._undo.callback(gateway.stop)
            gateway.start()
        self._undo.callback(serve_address(*gateway.address))
        stamping.callback(install(gateway.url))
        keys = {key for provider in PROVIDERS.values() for key in provider.keys}
        # the user's own key is kept where there is one
        values = {
            name: value for name, value in gateway.environment().items() if name not in keys or not os.environ.get(name)
        }
        if offline:
            self.off = _tracing_off(os.environ)
            values |= self.off
        self._undo.callback(_restore, {name: os.environ.get(name) for name in (*values, VARIABLE)})
        # a worker of xdist has got those of its controller
        inherited = {name for name, value in os.environ.items() if before.get(name) != value}
        self._elsewhere = {name: before.get(name) for name in {*values, *inherited, VARIABLE}}
        replace_variables(os.environ, values)
        # work of this thread between the cases, such as other tests, belongs to none that runs at the same time
        self._undo.enter_context(stamped(gateway.outside, on_this_thread=True))

    def stop(self) -> None:
        """Stop serving, and restore the variables."""
        # the run's summary is written
        tell_late()
        self._undo.close()
        self.gateway = None

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Return the block in which the variables are those of code that is no case's, and stay as it leaves them."""
        ours = {name: os.environ.get(name) for name in self._elsewhere}
        _restore(self._elsewhere)
        try:
            yield
        finally:
            # a fixture of several tests may have set some
            self._elsewhere = {name: os.environ.get(name) for name in self._elsewhere}
            _restore(ours)

    def configure(self, **settings: Any) -> None:
        """Set what the gateway counts with and may do, once suites are known; see `Gateway.configure`."""
        if self.gateway is not None:
            self.gateway.configure(record=self._mode == "record", **settings)

    def open_case(
        self, suite: object, case_id: str, recorded: Sequence[GatewayExchange] | None = None, *, trial: int = 0
    ) -> CaseTraffic | None:
        """Return the traffic of an attempt; None where the gateway does not serve.

        Args:
            suite: the case's suite, which `take_late` compares by identity.
            case_id: the case.
            recorded: the exchanges to be replayed, in fixture mode.
            trial: the number of the attempt, from 0.
        """
        return None if self.gateway is None else self.gateway.open_case(case_id, recorded, trial=trial, suite=suite)

    @contextmanager
    def outside_process(self, traffic: CaseTraffic) -> Iterator[None]:
        """Return the block in which a target outside this process can reach the gateway for an attempt."""
        gateway = self.gateway
        if gateway is None:
            raise RuntimeError("an attempt has traffic where the gateway serves")

        def shared() -> tuple[str, dict[str, str]]:
            token = gateway.child_token()
            return token, {**os.environ, **gateway.environment(token)}

        own = None
        if self._mode != "live":
            own = {**os.environ, **gateway.environment(traffic.token)}
            if self._mode == "fixture":
                own = {**_without_keys(own), **gateway.environment(traffic.token), **_no_way_out()}
        route = GatewayRoute(
            url=f"{gateway.url}/case/{traffic.token}",
            environment=own,
            shared_environment=shared,
            assign=lambda token: gateway.assign(token, traffic),
        )
        with traffic.active():
            before = ROUTE.set(route)
            try:
                yield
            finally:
                # an abandoned coroutine is closed outside its context, where the variable has no value to reset
                with suppress(ValueError):
                    ROUTE.reset(before)


def _tracing_off(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what switches off the tracers for which variables are set: offline, they reach nothing."""
    tools = {name.partition("_")[0] for name in environment}
    return {
        name: value
        for name, value in _OFF.items()
        if name.partition("_")[0] in tools and environment.get(name) != value
    }


def _without_keys(environment: Mapping[str, str]) -> dict[str, str]:
    from pytest_packbench.backends import VARIABLE
    from pytest_packbench.model.redaction import holds_secret

    return {name: value for name, value in environment.items() if name != VARIABLE and not holds_secret(name, value)}


def _no_way_out() -> dict[str, str]:
    """Return variables of proxies that reach nothing but this machine; they keep no program from asking directly."""
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), _DEAD_PROXY)
    return {**proxies, **{name.lower(): _DEAD_PROXY for name in proxies}, "NO_PROXY": _HERE, "no_proxy": _HERE}


def _restore(before: Mapping[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
