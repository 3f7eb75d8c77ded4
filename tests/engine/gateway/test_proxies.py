"""The gateway reaches providers through the proxy of the environment, and this machine never."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.gateway.proxies import proxy_for, route_text
from pytest_packbench.model.redaction import Redactor
from tests.engine.gateway.gateways import error_of, post, recorded
from tests.servers.fake import FakeServer, closed_port, scripted
from tests.servers.proxy import ForwardProxy
from tests.servers.raw import RawServer, head
from tests.servers.wire import openai_reply

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.engine.gateway import CaseTraffic

ANSWER = json.dumps(openai_reply("Zwölf").body).encode()
WHOLE = [head(f"content-length: {len(ANSWER)}", "content-type: application/json"), ANSWER]
HOST = "models.example.test"
LOGIN = "Basic dXNlciBvZiBwcm94eTpwQHNzd29yZA=="
VARIABLES = tuple(f"{scheme}_{word}" for scheme in ("http", "https", "all", "no") for word in ("proxy",))


@pytest.fixture(autouse=True)
def _no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def asked(address: str, codes: list[int] | None = None, times: int = 1) -> CaseTraffic:
    found = [] if codes is None else codes
    return recorded(address, lambda gateway: found.extend(post(gateway, f"q{n}").status_code for n in range(times)))


def test_an_http_address_is_asked_through_the_proxy_with_its_login(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    with FakeServer(scripted(openai_reply("Zwölf"))) as server, ForwardProxy(server.url) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("://", "://user%20of%20proxy:p%40ssword@"))
        traffic = asked(f"http://login@{HOST}:8080/base", codes)
    assert (codes, error_of(traffic)) == ([200], "")
    first, *lines = proxy.heads[0].split("\r\n")
    assert first == f"POST http://{HOST}:8080/base/v1/chat/completions HTTP/1.1"
    assert f"proxy-authorization: {LOGIN}" in lines
    assert f"host: {HOST}:8080" in lines


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A certificate of the company's own authority, for the provider and for the proxy; its key is beside it."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    pem = str(tmp_path_factory.mktemp("authority") / "company.pem")
    names = f"subjectAltName=DNS:{HOST},IP:127.0.0.1"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=company", "-addext", names, "-out", pem]
    subprocess.run(["openssl", *words, "-keyout", f"{pem}.key"], check=True, capture_output=True)
    return pem


def tls(pem: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, f"{pem}.key")
    return context


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
@pytest.mark.parametrize("is_tls_proxy", [False, True])
def test_https_passes_the_proxy_unread_and_its_certificate_is_checked(
    variable: str, authority: str, monkeypatch: pytest.MonkeyPatch, *, is_tls_proxy: bool
) -> None:
    codes: list[int] = []
    with (
        RawServer(lambda _: WHOLE, tls=tls(authority)) as server,
        ForwardProxy(server.url.replace("localhost", "127.0.0.1"), tls=tls(authority) if is_tls_proxy else None) as way,
    ):
        monkeypatch.setenv("HTTPS_PROXY", way.url.replace("://", "://user%20of%20proxy:p%40ssword@"))
        assert "certificate verify failed" in error_of(asked(f"https://{HOST}"))
        monkeypatch.setenv(variable, authority)
        traffic = asked(f"https://{HOST}", codes, times=2)
    assert (codes, error_of(traffic), server.connections) == ([200, 200], "", 1)
    first, *lines = way.heads[-1].split("\r\n")
    assert first == f"CONNECT {HOST}:443 HTTP/1.1"
    assert f"proxy-authorization: {LOGIN}" in lines
    # the login of the proxy is not the provider's to see
    assert b"proxy-authorization" not in server.requests[-1]


def test_another_name_in_the_certificate_is_refused(authority: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", authority)
    with RawServer(lambda _: WHOLE, tls=tls(authority)) as server:
        with ForwardProxy(server.url.replace("localhost", "127.0.0.1")) as way:
            monkeypatch.setenv("HTTPS_PROXY", way.url)
            error = error_of(asked("https://other.example.test"))
        assert "certificate is not valid for 'other.example.test'" in error
        assert server.requests == []


def test_authorities_that_can_t_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "absent.pem"))
    assert f"REQUESTS_CA_BUNDLE={tmp_path / 'absent.pem'} can't be read: " in error_of(asked(f"https://{HOST}"))


@pytest.mark.parametrize(
    ("scheme", "answer", "words"),
    [
        ("http", head("proxy-authenticate: Basic", status="407 Who"), "the proxy asks for a login (407)"),
        ("https", head("proxy-authenticate: Basic", status="407 Who"), "the proxy asks for a login (407)"),
        ("https", head(status="403 No"), "it answers CONNECT by the status 403"),
        ("https", b"SSH-2.0-x\r\n\r\n", "the proxy 127.0.0.1:"),
    ],
)
def test_what_a_proxy_refuses_is_an_error_of_the_network(
    scheme: str, answer: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ForwardProxy("http://127.0.0.1:9", refusal=answer) as way:
        monkeypatch.setenv("ALL_PROXY", way.url)
        traffic = asked(f"{scheme}://{HOST}")
    error = error_of(traffic)
    assert error.startswith("network: ")
    assert words in error


@pytest.mark.parametrize(
    ("proxy", "words"),
    [
        ("http://127.0.0.1:PORT", "the proxy 127.0.0.1:"),
        ("socks5://127.0.0.1:9", "is neither http:// nor https://"),
        ("http://proxy:port", "can't be read"),
    ],
)
def test_a_proxy_that_is_not_there_or_of_another_kind_is_named(
    proxy: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy.replace("PORT", str(closed_port())))
    error = error_of(asked(f"https://{HOST}"))
    assert error.startswith("network: ")
    assert words in error
    assert "proxy" in error


@pytest.mark.parametrize(
    ("address", "excluded", "is_direct"),
    [
        ("http://127.0.0.1:11434", "", True),
        ("http://127.8.9.1", "", True),
        ("http://[::1]:1", "", True),
        ("http://0.0.0.0:11434", "", True),
        ("https://localhost", "", True),
        ("http://app.localhost:80/v1", "", True),
        ("https://localhost.example.test", "", False),
        (f"https://{HOST}/v1", "", False),
        (f"https://{HOST}/v1", "example.test", True),
        (f"https://{HOST}/v1", ".example.test", True),
        (f"https://{HOST}/v1", "models", False),
        (f"https://{HOST}/v1", "other.test, models.example.test", True),
        (f"https://{HOST}/v1", f"{HOST}:443", True),
        (f"https://{HOST}/v1", f"{HOST}:8443", False),
        (f"http://{HOST}:8443/v1", f"{HOST}:8443", True),
        (f"https://{HOST}/v1", "*", True),
        ("http://10.2.3.4:8000", "10.2.3.4", True),
        ("http://11.2.3.4:8000", "10.2.3.4", False),
        ("http://host:port", "", True),
    ],
)
def test_loopback_and_what_no_proxy_names_are_reached_directly(address: str, excluded: str, *, is_direct: bool) -> None:
    proxies = {"http": "proxy.test:3128", "https": "http://proxy.test:3128", "no": excluded}
    assert proxy_for(address, proxies) == ("" if is_direct else "http://proxy.test:3128")


def test_the_header_names_the_proxy_without_its_login_and_who_can_read_the_key() -> None:
    proxies = {"all": "http://user:password@proxy.test:3128"}
    assert route_text(f"https://{HOST}", proxies) == " through the proxy http://proxy.test:3128"
    assert "which can read the key, because the address is http://" in route_text(f"http://{HOST}", proxies)
    assert route_text("http://127.0.0.1:1", proxies) == ""
    assert proxy_for(f"ftp://{HOST}", {"https": "http://p"}) == ""


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "http_proxy", "ALL_PROXY"])
def test_user_and_password_of_the_proxy_are_secrets(name: str) -> None:
    values: dict[str, Any] = {name: "http://emp-48213:Blue.Tulip@proxy.test:3128"}
    redactor = Redactor(dict(os.environ) | values)
    said = redactor.text(f"407 for emp-48213 with Blue.Tulip at proxy.test: Basic {'ZW1wLTQ4MjEzOkJsdWUuVHVsaXA='}")
    assert "emp-48213" not in said
    assert "Tulip" not in said
    assert "ZW1wLTQ4MjEz" not in said
    assert "proxy.test" in said
