"""What entries of an allow-list mean, and which addresses are never reached."""

from __future__ import annotations

import socket

import pytest

from coderoom.errors import RequestError
from coderoom.sandbox import Sandbox
from coderoom.sandbox.proxy.rules import AllowList, normal_host, parse_rule


def allow_list(*texts: str) -> AllowList:
    return AllowList(map(parse_rule, texts))


@pytest.mark.parametrize(
    ("entry", "allowed", "refused"),
    [
        ("api.example.org", ["api.example.org:1", "api.example.org:443"], ["example.org:443", "x.api.example.org:443"]),
        ("API.Example.org.:443", ["api.example.org:443"], ["api.example.org:444"]),
        ("*.example.org", ["a.example.org:5", "a.b.example.org:5"], ["example.org:5", "badexample.org:5"]),
        ("*.example.org:443", ["a.example.org:443"], ["a.example.org:80"]),
        ("bücher.example", ["xn--bcher-kva.example:443"], ["bucher.example:443"]),
        ("192.0.2.7:8080", ["192.0.2.7:8080"], ["192.0.2.7:80", "192.0.2.8:8080"]),
        ("[2001:DB8:0::7]:443", ["2001:db8::7:443"], []),
        ("::1", ["::1:443"], ["127.0.0.1:443"]),
        ("localhost:80", ["localhost:80", "127.0.0.1:80", "::1:80"], ["127.0.0.1:81", "127.0.0.2:80"]),
        ("*", ["any.example:1", "8.8.8.8:53"], []),
    ],
)
def test_entries(entry: str, allowed: list[str], refused: list[str]) -> None:
    found = allow_list(entry)
    for place in (*allowed, *refused):
        host, _, port = place.rpartition(":")
        assert found.allows(host, int(port)) is (place in allowed), place


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("https://api.example.org/v1", "write the host alone: 'api.example.org'"),
        ("user@example.org", "write the host alone: 'example.org'"),
        ("example.org:0", "no port 0"),
        ("*.1.2.3.4", "not the name of a host"),
        ("2130706433", "not the name of a host"),
        ("0x7f000001", "not the name of a host"),
        ("127.1", "not the name of a host"),
        ("a b.example", "not the name of a host"),
        ("*.*.example", "not the name of a host"),
        ("", "not the name of a host"),
        (7, "is no text"),
    ],
)
def test_wrong_entries_are_refused(entry: str, said: str) -> None:
    with pytest.raises(RequestError, match=said) as error:
        Sandbox(network=[entry])
    assert str(error.value).startswith("network: ")


def test_other_spellings_of_addresses_are_no_hosts() -> None:
    for host in ("2130706433", "0177.0.0.1", "127.1", "0x7f.1", "127.0.0.1.", "1.2.3.4.5", "a..b", "-a.b", "a" * 254):
        assert normal_host(host) is None, host
    assert normal_host("A.Example.ORG.") == "a.example.org"
    assert normal_host("[::FFFF:1.2.3.4]") == "1.2.3.4"


NEVER = """127.0.0.1 127.8.9.1 0.0.0.0 10.1.2.3 172.16.0.1 192.168.1.1 100.64.0.1 169.254.169.254 100.100.100.200
 168.63.129.16 224.0.1.1 255.255.255.255 240.0.0.1 192.0.0.192 198.18.0.1 ::1 :: fe80::1%eth0 fc00::1 fd00:ec2::254
 ff02::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 64:ff9b::7f00:1 64:ff9b:1::1 2002:7f00:1::1 2001:0:1::1 ::127.0.0.1 fec0::1"""


def test_addresses_that_no_name_leads_to() -> None:
    rules = allow_list("*")
    for address in NEVER.split():
        assert rules.objection(address, 443), address
    for address in ("8.8.8.8", "1.1.1.1", "2606:4700::1111", "64:ff9b::808:808"):
        assert not rules.objection(address, 443), address


def test_an_address_in_the_list_is_reached_at_its_port() -> None:
    rules = allow_list("10.1.2.3:443", "169.254.169.254", "example.org")
    assert not rules.objection("10.1.2.3", 443)
    assert not rules.objection("::ffff:10.1.2.3", 443)
    assert not rules.objection("169.254.169.254", 80)
    assert rules.objection("10.1.2.3", 80)


def test_addresses_of_this_machine_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("192.0.2.1", 9))  # Sends nothing.
        own = sock.getsockname()[0]
    assert allow_list("*").objection(own, 443) == "an address of this machine"
