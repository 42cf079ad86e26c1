"""The decision of the proxy: which hosts, ports and addresses are let through. Standard library only."""

from __future__ import annotations

import ipaddress
import json
import re
import socket
from collections.abc import Iterable, Sequence
from typing import NamedTuple

AUTHORITY = "/etc/coderoom-authority.pem"
"""Where code finds the certificate of the authority of the proxy."""

PROXY_PORT = 3128
"""The port at code's loopback that understands requests to HTTP proxies and SOCKS 5."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)
_SHAPE = re.compile(r"\[(?P<v6>[^\[\]]*)\](?::(?P<port6>\d+))?|(?P<host>[^:\[\]]*)(?::(?P<port>\d+))?")
_NUMBER = re.compile(r"\d+|0x[\da-f]*", re.ASCII)
_LONGEST_NAME = 253
_LOOPBACK = ("127.0.0.1", "::1")
# Services for the machines of clouds that have public addresses: Azure.
_METADATA = frozenset({ipaddress.ip_address("168.63.129.16")})
# IANA's registries of special addresses: `ipaddress` knows them in another way in each version of Python. Of IPv6, what
# is not in use as public addresses is left out by `_PUBLIC`. The ranges for documentation are no private ones: nobody
# has them, but for networks that stand in for the internet.
_SPECIAL = [
    ipaddress.ip_network(each)
    for each in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"),
        *("2001::/23", "2002::/16"),
    )
]
_PUBLIC = ipaddress.ip_network("2000::/3")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Rule(NamedTuple):
    """An entry of an allow-list.

    Attributes:
        host: A name in lower case, `*.` and a name, `*` for every public host, or an address.
        port: The port; `None` for all.
    """

    host: str
    port: int | None


def parse_rule(text: object) -> Rule:
    """Read an entry of an allow-list.

    Raises:
        ValueError: It is something else; the message says what, and what to write.
    """
    if not isinstance(text, str):
        raise ValueError(f"{text!r:.100} is no text; write 'api.example.org', 'api.example.org:443' or '*.example.org'")
    shown, found = repr(text[:100]), _SHAPE.fullmatch(text.strip())
    if "/" in text or "@" in text:
        host = re.sub(r"^[a-z+.-]*://|^//|[^@/]*@", "", text.strip(), flags=re.IGNORECASE).partition("/")[0]
        raise ValueError(f"{shown} is an address of a page; write the host alone: {host!r}")
    port = None
    if found is None:
        host = text.strip()  # An address of IPv6 without brackets, or nonsense.
    else:
        host = found["v6"] if found["v6"] is not None else found["host"]
        number = found["port6"] or found["port"]
        port = int(number) if number else None
        if port is not None and not 1 <= port <= 65_535:
            raise ValueError(f"{shown}: there is no port {number}; ports are 1 to 65535")
    wild = host.startswith("*.")
    name = "*" if host == "*" else normal_host(host[2:] if wild else host)
    if name is None or (wild and address_of(name) is not None):
        raise ValueError(
            f"{shown} is not the name of a host; write 'api.example.org', 'api.example.org:443', '*.example.org', or "
            "an address such as '192.0.2.7:8080' or '[2001:db8::7]:443'"
        )
    return Rule(f"*.{name}" if wild else name, port)


def normal_host(host: str) -> str | None:
    """A name or an address in the spelling by which hosts are compared; `None` if it is neither.

    A name is in lower case, without a dot at its end, in ASCII (RFC 5891's `xn--`). An address is in the usual
    spelling: others, such as decimal or octal numbers, are not taken, since programs read them differently.
    """
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    # A zone of IPv6 means an interface of this machine; the letters are other domains for IDNA 2008 than for 2003.
    if len(host) > _LONGEST_NAME + 1 or any(each in host for each in "%ßς\u200c\u200d"):
        return None
    try:
        address = ipaddress.ip_address(host)
        return str(getattr(address, "ipv4_mapped", None) or address)
    except ValueError:
        pass
    name = host.removesuffix(".").lower()
    try:
        if not name.isascii():
            name = name.encode("idna").decode("ascii").lower()
    except UnicodeError:
        return None
    labels = name.split(".")
    # A last label that is a number, also a hexadecimal one, makes `inet_aton` read the whole as an address.
    if len(name) > _LONGEST_NAME or not all(map(_LABEL.fullmatch, labels)) or _NUMBER.fullmatch(labels[-1]):
        return None
    return name


def address_of(host: str) -> Address | None:
    """The address, if the host is one."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def shown(host: str, port: int | None) -> str:
    """A host and a port as they are written in an allow-list."""
    host = f"[{host}]" if ":" in host else host
    return host if port is None else f"{host}:{port}"


def advice(host: str, port: int | None) -> str:
    """That a host is not in the allow-list, and what would allow it."""
    text = shown(host, port)
    return f"{text} is not in the allow-list; network: [{json.dumps(text)}] allows it."


class AllowList:
    """The hosts that code may reach.

    `localhost` is the name of this machine's loopback addresses, so an entry with it is an entry with them.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = frozenset(rules)
        named = {Rule(each, rule.port) for rule in self._rules if rule.host == "localhost" for each in _LOOPBACK}
        self._rules |= named

    @property
    def ports(self) -> Sequence[int]:
        """The ports that entries name."""
        return sorted({rule.port for rule in self._rules if rule.port is not None})

    def allows(self, host: str, port: int | None) -> bool:
        """Whether a host, as `normal_host` gives it, is in the list; without a port: for any port."""
        names = [host, "*"]
        if address_of(host) is None:
            labels = host.split(".")
            names += ["*." + ".".join(labels[start:]) for start in range(1, len(labels))]
        wanted = [Rule(name, each) for name in names for each in (None, port)]
        if port is None:
            return any(rule.host in names for rule in self._rules)
        return not self._rules.isdisjoint(wanted)

    def objection(self, address: str, port: int) -> str:
        """Why no connection may be made to an address, whatever name has led to it; empty if one may."""
        found = ipaddress.ip_address(address.partition("%")[0])
        mapped = getattr(found, "ipv4_mapped", None)
        if mapped is not None or found in _NAT64:
            found = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if not self._rules.isdisjoint((Rule(str(found), None), Rule(str(found), port))):
            return ""
        if found.is_loopback or found.is_unspecified or is_own(found):
            return "an address of this machine"
        if found in _METADATA or found.is_link_local:
            return "an address of its network's own services"
        if any(found in each for each in _SPECIAL) or (found.version == 6 and found not in _PUBLIC):
            return "no public address"
        return ""


def is_own(address: Address) -> bool:
    """Whether an address is one of this machine's: only to these can a socket be bound."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((str(address), 0))
    except OSError:
        return False
    return True
