"""API keys and certificates from Secrets' folders."""

import asyncio
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from support.serving.openai import write_certificate
from tandem_serving.openai.access import ApiKeys, reload_certificate
from tandem_serving.openai.errors import ApiError

HEADERS = [
    ("Bearer one", True),
    ("bearer  two ", True),
    ("Bearer three", True),
    ("Bearer ", False),
    ("", False),
    ("Bearer o", False),
    ("Bearer one\ntwo", False),
    ("Basic one", False),
    ("one", False),
    ("Bearer ünicode", False),
]


def allowed(keys: ApiKeys, header: str) -> bool:
    try:
        keys.check(header)
    except ApiError as error:
        assert (error.status, error.code) == (401, "invalid_api_key")
        return False
    return True


@pytest.mark.parametrize(("header", "known"), HEADERS)
def test_each_line_of_each_file_is_a_key(tmp_path: Path, header: str, known: bool) -> None:
    """A mounted Secret's files are links into a folder whose name begins with dots."""
    data = tmp_path / "..2026"
    data.mkdir()
    (data / "team-a").write_text("one\n\n  two\n")
    (data / "team-b").write_text("three")
    for name in ("team-a", "team-b"):
        (tmp_path / name).symlink_to(data / name)
    assert allowed(ApiKeys(tmp_path), header) is known


def test_a_secret_that_is_empty_or_gone_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    for folder in (tmp_path, tmp_path / "gone"):
        for header in ("Bearer x", "Bearer ", ""):
            assert not allowed(ApiKeys(folder), header)


def test_without_a_secret_whoever_reaches_the_port_may_ask() -> None:
    assert allowed(ApiKeys(None), "")


async def name_of_the_certificate(port: int) -> str:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(der).subject.rfc4514_string()


async def test_a_renewed_certificate_is_for_new_connections_and_a_broken_one_is_not_taken(tmp_path: Path) -> None:
    write_certificate(tmp_path, "first")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    watch = asyncio.create_task(reload_certificate(context, tmp_path, 0.01))
    try:
        assert await name_of_the_certificate(port) == "CN=first"
        (tmp_path / "tls.crt").write_text("broken")
        await asyncio.sleep(0.1)
        assert await name_of_the_certificate(port) == "CN=first"
        write_certificate(tmp_path, "second")
        async with asyncio.timeout(60):
            while await name_of_the_certificate(port) != "CN=second":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    finally:
        watch.cancel()
        server.close()
