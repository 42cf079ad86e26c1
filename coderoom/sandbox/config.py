"""The configuration of a sandbox: the checked arguments of `Sandbox`, which its engine and its wall read."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    SecretStr,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import ErrorDetails

from coderoom.errors import RequestError
from coderoom.sandbox.policy import POLICIES
from coderoom.sandbox.proxy.rules import parse_rule
from coderoom.sandbox.registry import ENGINES, WALLS
from coderoom.sandbox.requirements import WORDS, check_packages

MIB = 1024 * 1024
MOST_FORKS_IN_A_ROW: Final = 24
"""How often a session may be a fork of a fork: the kernel allows 32 user namespaces inside of each other."""
MOST_FORKS_WITH_LANDLOCK: Final = 12
"""The same where Landlock keeps forks apart, of which the kernel allows 16 layers."""

DEFAULTS = {
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "MPLBACKEND": "Agg",
    "MPLCONFIGDIR": "/tmp/matplotlib",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUTF8": "1",
    "TERM": "dumb",
    "USER": "coder",
    # A process with threads cannot be forked safely, and many forks run at the same time anyway.
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
WITHOUT_NETWORK = {"PIP_RETRIES": "0", "npm_config_fetch_retries": "0", "UV_HTTP_RETRIES": "0"}
"""For programs that would ask for minutes for what cannot be reached."""
WallName: TypeAlias = Annotated[str, WALLS]
EngineName: TypeAlias = Annotated[str, ENGINES]
_WRONG: Final = {
    "workspace_mode": "is neither 'direct' nor 'overlay'",
    "preload": "is not a list of texts",
    "limits": "is neither Limits(...) nor a mapping of what differs from them",
    "workspace": "is not the path of a folder; give a text or a Path",
    "network": "is neither True nor False nor a list of hosts, such as ['api.example.org:443']",
    "terminals": "is neither True nor False",
    "local_network": "is neither True nor False",
    "describe_tables": "is neither True nor False",
    "python": "is not the path of an interpreter; give a text or a Path",
    "environment": "is not the path of an environment; give a text or a Path",
    "packages": "is not a list of texts, such as ['polars>=1'], or 'on-request'",
    "allowed_packages": "is not a list of names of packages",
    "readable": "is not a list of texts or Paths",
    "concurrency": "must be a whole number and at least 1",
}
_LONGEST_SHOWN: Final = 100
_MOST_HOSTS: Final = 50
_OF_MESSAGES: Final = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
]
OBSERVE: Final = "observe"
"""In place of a list of hosts, or in it: what the code asks for besides is noted. A list is enough for that, too."""
OWN: Final = ("authority", "node_modules", "place", "bundles", "copied", "origin")
"""What engines and servers add to a configuration, which are no arguments of `Sandbox`."""
Name = Annotated[str, Field(min_length=1)]


class Limits(BaseModel):
    """Limits for a cell, its session and all processes that they start."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    wall_seconds: float = Field(
        default=60, gt=0, le=86_400, allow_inf_nan=False, description="Time of a cell (`wall`)."
    )
    cpu_seconds: float | None = Field(
        default=None,
        gt=0,
        le=86_400,
        allow_inf_nan=False,
        description="Processor time of a cell, over all its processes (`cpu`).",
    )
    memory_bytes: int = Field(
        default=1024 * MIB,
        ge=32 * MIB,
        description="Memory of a process, and of all processes of a session together (`memory`).",
    )
    processes: int = Field(
        default=64, ge=1, le=4096, description="Processes and threads of a session at a time (`processes`)."
    )
    open_files: int = Field(default=256, ge=32, le=4096, description="Open files of a process (`open_files`).")
    file_bytes: int = Field(default=256 * MIB, ge=4096, description="Size of a file (`file_size`).")
    disk_bytes: int = Field(
        default=512 * MIB,
        ge=65_536,
        description="Bytes that a session may write into its workspace, and the size of its private `/tmp` (`disk`).",
    )
    output_bytes: int = Field(
        default=MIB,
        ge=256,
        le=256 * MIB,
        description="Output of a cell that is kept: its beginning and its end; the rest is only counted (`output`).",
    )
    value_bytes: int = Field(
        default=MIB,
        ge=256,
        le=64 * MIB,
        description=(
            "Size of a cell's value as JSON; of a larger one the result has only the shortened `repr` (`value`). "
            "The arguments and the result of a call to a function of the host have the same limit; above it, the "
            "call fails."
        ),
    )
    calls: int = Field(default=10_000, ge=0, description="Calls of a cell to functions of the host.")
    call_seconds: float = Field(
        default=60, gt=0, le=86_400, allow_inf_nan=False, description="Time of each of these calls."
    )
    network_bytes: int = Field(
        default=1024 * MIB,
        ge=0,
        description="Bytes that a session may send and receive through the proxy, with a list of hosts as `network`.",
    )
    connect_seconds: float = Field(
        default=20, gt=0, le=3600, allow_inf_nan=False, description="Time of the proxy to connect to a host."
    )
    compile_seconds: float = Field(
        default=60,
        gt=0,
        le=86_400,
        allow_inf_nan=False,
        description="Time of the compiler, before a program runs (`wall`).",
    )
    yield_seconds: float | None = Field(
        default=None,
        gt=0,
        le=86_400,
        allow_inf_nan=False,
        description=(
            "After so long, a cell that computes gets a lower priority, so that short ones do not wait for it. "
            "With it, output above its limit is read slowly."
        ),
    )


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return all environment variables of the code."""
    zone = {"TZ": os.environ["TZ"]} if "TZ" in os.environ else {}
    return {**DEFAULTS, **zone, **extra}


def _header(name: str) -> str:
    if name.lower() in _OF_MESSAGES:
        raise ValueError(f"{name} says where a message begins or ends, and is no credential")
    return name


class Credential(BaseModel):
    """What the proxy adds to the code's requests to a host, so that the code never has it."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    value: SecretStr = Field(
        description="The header's value, such as `Bearer ${GITHUB_TOKEN}`; the variables are those of this process."
    )
    header: Annotated[str, AfterValidator(_header)] = Field(
        default="Authorization", pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$", description="Its name."
    )
    methods: tuple[Annotated[str, Field(pattern=r"^[A-Z]+$")], ...] = Field(
        default=(), description="The methods that are let through, such as `GET`; empty: all."
    )
    paths: tuple[Annotated[str, Field(pattern=r"^/[^?#]*$")], ...] = Field(
        default=(), description="The beginnings of the paths that are let through, such as `/repos/me`; empty: all."
    )


class SourceModule(NamedTuple):
    """A module for `Sandbox(preload=...)` that is not installed inside; the worker makes it from its source.

    Attributes:
        name: Its full name. A package must come before its modules.
        source: Its source code.
    """

    name: str
    source: str


def _choice(value: object, info: ValidationInfo) -> str:
    plugins = {"wall": WALLS, "engine": ENGINES}.get(str(info.field_name))
    if plugins is not None and (not isinstance(value, str) or value not in plugins):
        raise RequestError(plugins.unknown(value))
    if plugins is None and value not in POLICIES:
        listed = ", ".join(map(repr, POLICIES))
        raise RequestError(f"There is no {info.field_name} {value!r}; there are {listed}.{_near(value, POLICIES)}")
    return str(value)


def _mapping(value: object, info: ValidationInfo) -> dict[Any, Any]:
    if not isinstance(value, Mapping):  # Its content may be secret.
        kind = type(value).__name__
        raise RequestError(f"{info.field_name}= is a {kind}, and a mapping from names to values was expected.")
    for name, text in value.items() if info.field_name == "env" else ():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise RequestError(f"env: {name!r} is not the name of an environment variable.")
        if not isinstance(text, str) or "\0" in text:  # It may be a secret, so it is not shown.
            kind = "text with a null character" if isinstance(text, str) else f"a {type(text).__name__}"
            raise RequestError(f"env: the value of {name!r} is {kind}, and text was expected.")
    if info.field_name == "options" and isinstance(value.get("token"), str):
        return {**value, "token": SecretStr(value["token"])}
    return dict(value)


def _path(value: object) -> object:
    return Path(value) if isinstance(value, str) and value else value


def _folder(value: object) -> object:
    path = _path(value)
    try:
        return path.expanduser().absolute() if isinstance(path, Path) else path
    except RuntimeError as error:
        raise RequestError(f"workspace={shown(value)} cannot be found: {error}") from error


def _listed(value: object) -> object:
    is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    return tuple(value) if is_list else value  # type: ignore[arg-type]


def _hosts(value: object) -> object:
    hosts = _listed((value,) if value == OBSERVE else value)
    if not isinstance(hosts, tuple):
        return hosts
    hosts = tuple(host for host in hosts if host != OBSERVE)
    for host in hosts:
        try:
            parse_rule(host)
        except ValueError as error:
            raise RequestError(f"network: {error}.") from error
    return hosts


def _credentials(value: object, info: ValidationInfo) -> Mapping[str, Credential]:
    found = {}
    for host, given in _mapping(value, info).items():
        try:
            rule = parse_rule(host)
            if "*" in rule.host:
                raise ValueError(f"{host!r} has a wildcard, and a credential is for one host")
            found[host] = given if isinstance(given, Credential) else Credential.model_validate(given)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"])) or "its settings"
            message = f"credentials: {host}: {place}: {first['msg']}."
            raise RequestError(message) from None  # The value may be in it.
        except ValueError as error:
            raise RequestError(f"credentials: {error}.") from None
    return found


def _packages(value: object) -> object:
    return (value,) if value in WORDS else _listed(value)


class SandboxConfig(BaseModel):
    """The checked arguments of `Sandbox`, which describes each of them.

    Raises:
        RequestError: A value is wrong.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    wall: Annotated[str, PlainValidator(_choice)] = "auto"
    engine: Annotated[str, PlainValidator(_choice)] = "cpython"
    preload: Annotated[tuple[Name | SourceModule, ...], BeforeValidator(_listed)] = ()
    limits: Limits = Field(default_factory=Limits)
    workspace: Annotated[Path | None, BeforeValidator(_folder)] = None
    network: Annotated[bool | tuple[str, ...], BeforeValidator(_hosts)] = False
    policy: Annotated[Literal["open", "restricted"], PlainValidator(_choice)] = "open"
    env: Annotated[Mapping[str, str], PlainValidator(_mapping)] = Field(default_factory=dict)
    python: Annotated[Path | None, BeforeValidator(_path)] = None
    packages: Annotated[tuple[Annotated[str, PlainValidator(check_packages)], ...], BeforeValidator(_packages)] = ()
    allowed_packages: Annotated[tuple[Name, ...], BeforeValidator(_listed)] = ()
    readable: Annotated[tuple[Annotated[Path, BeforeValidator(_path)], ...], BeforeValidator(_listed)] = ()
    concurrency: int = Field(default=256, ge=1)
    options: Annotated[Mapping[str, Any], PlainValidator(_mapping)] = Field(default_factory=dict)
    local_network: bool = False
    credentials: Annotated[Mapping[str, Any], PlainValidator(_credentials)] = Field(default_factory=dict)
    terminals: bool = False
    workspace_mode: Literal["direct", "overlay"] = "direct"
    describe_tables: bool = False
    environment: Annotated[Path | None, BeforeValidator(_path)] = None
    # `OWN`: of the proxy that opens TLS for these hosts; the packages of npm.
    authority: str = Field(default="", repr=False)
    node_modules: Path | None = None
    # Where walls with a file tree of their own show the workspace; not an argument of `Sandbox`.
    place: str = Field(default="/workspace", repr=False)
    # Whether what code shows comes as output of the stream `shown`, not as files; not an argument of `Sandbox`.
    bundles: bool = Field(default=False, repr=False)
    # Whether the workspace is a copy for one session; not an argument of `Sandbox`.
    copied: bool = Field(default=False, repr=False)
    # The folder that it is a copy of; not an argument of `Sandbox`.
    origin: Path | None = Field(default=None, repr=False)

    @property
    def shared_workspace(self) -> Path | None:
        """The folder that code and host have in common; `None`: what code writes is kept apart from the host."""
        return self.workspace if self.workspace_mode == "direct" and not self.copied else None

    @property
    def of_fork(self) -> SandboxConfig:
        """The configuration of a fork, whose workspace is a copy in memory, or an overlay of its own."""
        return self if self.workspace_mode == "overlay" else self.model_copy(update={"workspace": None})

    @property
    def proxied(self) -> bool:
        """Whether the code reaches some hosts, through the proxy."""
        return not isinstance(self.network, bool) or bool(self.credentials)

    @property
    def host_network(self) -> bool:
        """Whether the code uses the network of this machine, as a whole."""
        return self.network is True

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """The hosts that the proxy lets through."""
        return () if isinstance(self.network, bool) else self.network

    def __init__(self, **arguments: Any) -> None:
        try:
            super().__init__(**arguments)
        except ValidationError as error:
            raise RequestError(_explain(error.errors(include_url=False), arguments)) from error
        if self.workspace_mode == "overlay" and self.workspace is None:
            raise RequestError("workspace_mode='overlay' needs a workspace, the folder that stays as it is.")
        if self.credentials and self.host_network:
            raise RequestError(
                "credentials: with network=True, nothing is between the code and the hosts; give a list of hosts."
            )


def network_in_words(network: bool | Sequence[str], credentials: Iterable[str] = ()) -> str:
    """What code can reach of the network, and of hosts with credentials, in a sentence for a model."""
    if network is True:
        return "The network can be used."
    listed = [] if isinstance(network, bool | str) else network
    hosts = [*(host for host in listed if host != OBSERVE), *credentials]
    if not hosts:
        return "There is no network."
    more = f" and {len(hosts) - _MOST_HOSTS} more" if len(hosts) > _MOST_HOSTS else ""
    return f"Of the network, code reaches these hosts and no others: {', '.join(hosts[:_MOST_HOSTS])}{more}."


def shown(value: object) -> str:
    """Return the `repr` of a value, shortened for a message."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _explain(errors: Sequence[ErrorDetails], arguments: Mapping[str, Any]) -> str:
    refused = errors[0].get("ctx", {}).get("error")
    if isinstance(refused, RequestError):
        return str(refused)
    name = str(errors[0]["loc"][0])
    if name not in SandboxConfig.model_fields:
        listed = ", ".join(SandboxConfig.model_fields)
        return f"There is no {name!r} among {listed}.{_near(name, SandboxConfig.model_fields)}"
    limits = [error for error in errors if error["loc"][0] == "limits" and len(error["loc"]) > 1]
    if name == "limits" and limits:
        wrong = "; ".join(map(_wrong_limit, limits))
        return f"limits: {wrong}" if wrong.endswith("?") else f"limits: {wrong}."
    return f"{name}={shown(arguments[name])} {_WRONG[name]}."


def _wrong_limit(error: ErrorDetails) -> str:
    name, message = str(error["loc"][1]), str(error["msg"])
    if error["type"] == "extra_forbidden":
        return f"there is no {name!r} among {', '.join(Limits.model_fields)}.{_near(name, Limits.model_fields)}"
    return f"{name}={shown(error['input'])}: {message[:1].lower()}{message[1:]}"


def _near(name: object, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1) if isinstance(name, str) else []
    return f" Did you mean {near[0]!r}?" if near else ""
