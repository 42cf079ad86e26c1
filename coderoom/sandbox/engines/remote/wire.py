"""Results, host functions and configurations as JSON, as they cross between a server and its clients.

Used by the engine `remote` and by `coderoom.integrations.service`. `docs/service.md` describes the fields.
"""

from __future__ import annotations

import base64
import inspect
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox.cell import artifacts_of
from coderoom.sandbox.config import Credential, SandboxConfig
from coderoom.sandbox.functions.function import Arguments, HostFunction, check_name
from coderoom.sandbox.guest.decoding import Decoder, TaggedError
from coderoom.sandbox.guest.encoding import ValueEncoder
from coderoom.sandbox.guest.functions import Shown
from coderoom.sandbox.result import Artifact, CodeError, ExecutionResult, FunctionCall, NetworkUse

T = TypeVar("T")
OPTIONS: Final = (
    "preload",
    "limits",
    "network",
    "policy",
    "env",
    "packages",
    "allowed_packages",
    "local_network",
    "credentials",
    "terminals",
    "describe_tables",
)
"""The arguments of `Sandbox` that a client of a server chooses; the server has all others."""
_KINDS: Final = {
    kind.name: kind
    for kind in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.VAR_KEYWORD,
    )
}
VARIABLE: Final = re.compile(r"\$\{(\w+)\}", re.ASCII)
"""In the value of a credential: an environment variable."""
_MOST: Final = 1 << 40


def result_to_json(result: ExecutionResult) -> dict[str, Any]:
    """A result without its code. The value is tagged data if it is data; contents of artifacts are base64."""
    facts: dict[str, Any] = {
        "outcome": result.outcome.value,
        "exit_code": result.exit_code,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "output": result.output,
        "value": None,
        "value_repr": result.value_repr,
        "value_is_data": result.value_is_data,
        "error": None if result.error is None else vars(result.error),
        "duration": result.duration,
        "truncated": result.truncated,
        "output_size": result.output_size,
        "artifacts": [_artifact_to_json(each) for each in result.artifacts],
        "artifacts_left_out": result.artifacts_left_out,
        "limit": result.limit,
        "state_lost": result.state_lost,
        "peak_memory": result.peak_memory,
        "calls": [_call_to_json(each) for each in result.calls],
        "network": [vars(each) for each in result.network],
    }
    if result.value_is_data:
        facts["value"] = ValueEncoder(_MOST, _MOST).encode(result.value)
    return facts


def result_from_json(facts: Mapping[str, Any], code: str, workspace: Path | None = None) -> ExecutionResult:
    """The way back, of what a server sends, which may be anything; `workspace` is the folder here that has the files.

    Raises:
        KeyError, TypeError, ValueError, RequestError: It is no such JSON.
    """
    known = {name: facts[name] for name in _OF_RESULTS if name in facts}
    value = facts.get("value_repr")
    if facts.get("value_is_data"):
        try:
            value = Decoder().read(facts["value"])
        except (TaggedError, RecursionError) as error:
            raise ValueError(str(error)) from error
    failure = facts.get("error")
    return _made(
        ExecutionResult,
        _OF_RESULTS,
        known,
        outcome=Outcome(facts["outcome"]),
        value=value,
        error=None if failure is None else _made(CodeError, _OF_ERRORS, failure),
        artifacts=_artifacts_from_json(facts.get("artifacts", ()), workspace),
        calls=tuple(
            _made(FunctionCall, _OF_CALLS, {**each, "outcome": Outcome(each["outcome"])})
            for each in facts.get("calls", ())
        ),
        network=tuple(_made(NetworkUse, _OF_NETWORK, each) for each in facts.get("network", ())),
        code=code,
    )


_WHOLE: Final = (int,)
_NUMBER: Final = (int, float)
_TEXT: Final = (str,)
_MAYBE_TEXT: Final = (str, type(None))
_MAYBE_WHOLE: Final = (int, type(None))
_OF_RESULTS: Final[Mapping[str, tuple[type, ...]]] = {
    **dict.fromkeys(("exit_code", "output_size", "artifacts_left_out"), _WHOLE),
    **dict.fromkeys(("stdout", "stderr", "output"), _TEXT),
    **dict.fromkeys(("value_is_data", "truncated", "state_lost"), (bool,)),
    "value_repr": _MAYBE_TEXT,
    "duration": _NUMBER,
    "limit": _MAYBE_TEXT,
    "peak_memory": _MAYBE_WHOLE,
}
_OF_ERRORS: Final[Mapping[str, tuple[type, ...]]] = {
    **dict.fromkeys(("type", "message", "traceback"), _TEXT),
    "line": _MAYBE_WHOLE,
}
_OF_CALLS: Final[Mapping[str, tuple[type, ...]]] = {
    "name": _TEXT,
    "arguments": (dict,),
    "outcome": (Outcome,),
    "duration": _NUMBER,
    "error": _MAYBE_TEXT,
    "edited": (bool,),
}
_OF_NETWORK: Final[Mapping[str, tuple[type, ...]]] = {
    **dict.fromkeys(("host", "why"), _TEXT),
    "port": _MAYBE_WHOLE,
    **dict.fromkeys(("connections", "sent", "received"), _WHOLE),
}


def _made(kind: Callable[..., T], types: Mapping[str, tuple[type, ...]], facts: Any, **more: Any) -> T:
    """Make an object of JSON whose types are known."""
    for name, value in facts.items():
        if not isinstance(value, types[name]):
            raise TypeError(f"{name} is a {type(value).__name__}")
    return kind(**facts, **more)


def _call_to_json(call: FunctionCall) -> dict[str, Any]:
    facts = {**vars(call), "outcome": call.outcome.value}
    del facts["id"], facts["reads"]  # The client has its own.
    return facts


def _artifact_to_json(artifact: Artifact) -> dict[str, Any]:
    return {
        "name": artifact.name,
        "size": artifact.size,
        "media_type": artifact.media_type,
        "position": artifact.position,
        "data": None if artifact.data is None else base64.b64encode(artifact.data).decode(),
    }


def _artifacts_from_json(listed: Any, workspace: Path | None) -> tuple[Artifact, ...]:
    """The artifacts; of a workspace here those that are files in it."""
    kept, contents, places = [], [], {}
    for each in listed:
        data = None if each.get("data") is None else base64.b64decode(each["data"])
        kept.append({"name": each["name"], "size": each["size"], "length": None if data is None else len(data)})
        contents.append(data or b"")
        if isinstance(each.get("position"), int):
            places[each["name"]] = each["position"]
    return artifacts_of(kept, b"".join(contents), workspace, places)


def options_of(config: SandboxConfig) -> dict[str, Any]:
    """What a client asks a server for: what differs from the defaults of a `Sandbox`."""
    default, found = SandboxConfig(), {}
    for name in OPTIONS:
        value = getattr(config, name)
        if value == getattr(default, name):
            continue
        if name == "limits":
            value = {key: each for key, each in value if each != getattr(default.limits, key)}
        elif name == "preload":
            value = [each if isinstance(each, str) else list(each) for each in value]
        elif name == "credentials":
            value = {host: credential_to_json(host, each) for host, each in value.items()}
        elif isinstance(value, tuple):
            value = list(value)
        found[name] = value
    return found


def credential_to_json(host: str, credential: Credential) -> dict[str, Any]:
    """A credential with its secret, for the server's proxy; variables are those of this process.

    Raises:
        RequestError: A variable is not set.
    """

    def value_of(found: re.Match[str]) -> str:
        value = os.environ.get(found[1], "").strip()
        if not value:
            raise RequestError(f"credentials: {host}: the environment variable {found[1]!r} is not set.")
        return value

    value = VARIABLE.sub(value_of, credential.value.get_secret_value())
    return {**credential.model_dump(mode="json"), "value": value}


def function_from_offer(offer: Mapping[str, Any], run: Callable[[str, list[Any], dict[str, Any]], Any]) -> HostFunction:
    """The function that a client offers, as `HostFunction.to_offer` describes it.

    `run` is called with its name and with the arguments, which its owner checks.

    Raises:
        RequestError: It is no such description.
    """
    try:
        name = check_name(str(offer["name"]))
        parameters = [_parameter(each) for each in offer.get("parameters", ())]
        returns = Shown(str(offer["returns"])) if "returns" in offer else inspect.Signature.empty
        signature = inspect.Signature(parameters, return_annotation=returns)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RequestError(f"functions: a description of a function is wrong: {error!r:.200}.") from error
    return HostFunction(
        name=name,
        signature=signature,
        doc=str(offer.get("doc", "")),
        is_async=bool(offer.get("is_async")),
        in_thread=False,
        check=Arguments,
        run=lambda arguments: run(name, list(arguments.args), dict(arguments.kwargs)),
        inside=str(offer.get("inside", "")),
    )


def _parameter(described: Mapping[str, Any]) -> inspect.Parameter:
    kind = _KINDS[str(described["kind"])]
    annotation = Shown(str(described["annotation"])) if "annotation" in described else inspect.Parameter.empty
    default: Any = inspect.Parameter.empty
    if "default" in described:
        default = described["default"]
    elif "default_text" in described:
        default = Shown(str(described["default_text"]))
    return inspect.Parameter(str(described["name"]), kind, default=default, annotation=annotation)
