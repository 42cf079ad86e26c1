"""The model services as data: how their models are named, and which variables hold their keys and addresses.

Their errors are put into a sentence or two, with advice. Used by `coderoom.configs` to make model clients, by the
generator's own client, by `coderoom models`, and where a failed model request is reported.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from traceback import format_exception
from typing import Any, Final

from coderoom.errors import MissingKeyError, RequestError

MODEL_VARIABLE: Final = "CODEROOM_MODEL"
"""The variable with the default model."""
DEFAULT_MODEL: Final = "gpt-4o"
"""The model of OpenAI to use if the variable is not set, as in the shipped teams."""
NO_KEY: Final = "none"
"""For a server that needs no key, because OpenAI's client requires one."""
OPENAI: Final = "autogen_ext.models.openai.OpenAIChatCompletionClient"

MODEL_FORMS: Final = (
    "openai:NAME, azure:DEPLOYMENT, anthropic:NAME, ollama:NAME, gemini:NAME, openrouter:NAME, vllm:NAME, "
    "http://HOST/v1#NAME, replay:FILE, or a YAML or JSON file with one model component"
)

UNKNOWN_MODEL: Final = {
    "vision": False,
    "function_calling": True,
    "json_output": True,
    "structured_output": True,
    "family": "unknown",
    "multiple_system_messages": True,
}
"""The `model_info` that is assumed for a model that AutoGen does not know."""

_HOSTED = {"gemini-": "GEMINI_API_KEY", "claude-": "ANTHROPIC_API_KEY", "Llama-": "LLAMA_API_KEY"}
"""Names for which AutoGen's client of OpenAI uses another host, and the variable with its key."""
_MISSPELT: Final = 0.85  # Names of models may have colons too, as llama3:8b.
_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Service:
    """A model service.

    Attributes:
        name: What stands before the colon in the text of a model.
        variables: The variables with fields of the client's config, by field.
        needed: The fields that must have a value.
        defaults: The values of fields whose variable is not set.
        provider: AutoGen's client.
        example: The name of a model.
    """

    name: str
    variables: Mapping[str, str]
    needed: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    provider: str = OPENAI
    example: str = "NAME"

    @property
    def package(self) -> str:
        """The package that the client needs, which is also the extra of CodeRoom that installs it."""
        return self.provider.split(".")[2]

    def config(self, name: str, env: Mapping[str, str]) -> dict[str, Any]:
        """The config of the client for a model, whose variables must be set."""
        variables = dict(self.variables)
        given = {key: env[variable] for key, variable in variables.items() if env.get(variable)}
        keyless = self.provider == OPENAI and ("base_url" in given or "api_key" not in self.needed)
        if self.name == "openai" and "base_url" not in given:
            hosted = next((key for start, key in _HOSTED.items() if name.startswith(start)), variables["api_key"])
            variables["api_key"] = hosted
            given = {"api_key": env[hosted]} if env.get(hosted) else {}
        missing = [variables[key] for key in self.needed if key not in given and not (keyless and key == "api_key")]
        if missing:
            needs = " and ".join("a key" if variable.endswith("_KEY") else "an address" for variable in missing)
            own = f", or {variables['base_url']} for a server that needs no key" if self.provider == OPENAI else ""
            raise MissingKeyError(
                f"the model '{self.name}:{name}' needs {needs}: set {' and '.join(missing)}{own}, or use --model "
                "(model= from Python) with another one; `coderoom models --setup` asks for a key and keeps it"
            )
        deployment = {"azure_deployment": name} if self.name == "azure" else {}
        return {"model": name, **deployment, **({"api_key": NO_KEY} if keyless else {}), **self.defaults, **given}


_SERVICES = (
    Service(
        "openai",
        {"api_key": "OPENAI_API_KEY", "base_url": "OPENAI_BASE_URL"},
        ("api_key",),
        example=DEFAULT_MODEL,
    ),
    Service(
        "azure",
        {
            "azure_endpoint": "AZURE_OPENAI_ENDPOINT",
            "api_key": "AZURE_OPENAI_API_KEY",
            "api_version": "OPENAI_API_VERSION",
        },
        ("azure_endpoint", "api_key"),
        {"api_version": "2024-10-21"},
        "autogen_ext.models.openai.AzureOpenAIChatCompletionClient",
        "DEPLOYMENT",
    ),
    Service(
        "anthropic",
        {"api_key": "ANTHROPIC_API_KEY", "base_url": "ANTHROPIC_BASE_URL"},
        ("api_key",),
        provider="autogen_ext.models.anthropic.AnthropicChatCompletionClient",
    ),
    Service(
        "ollama",
        {"host": "OLLAMA_HOST"},
        provider="autogen_ext.models.ollama.OllamaChatCompletionClient",
        example="llama3.2",
    ),
    Service(
        "gemini",
        {"api_key": "GEMINI_API_KEY", "base_url": "GEMINI_BASE_URL"},
        ("api_key",),
        {"base_url": "https://generativelanguage.googleapis.com/v1beta/openai/"},
        example="gemini-2.0-flash",
    ),
    Service(
        "openrouter",
        {"api_key": "OPENROUTER_API_KEY", "base_url": "OPENROUTER_BASE_URL"},
        ("api_key",),
        {"base_url": "https://openrouter.ai/api/v1"},
    ),
    Service(
        "vllm",
        {"api_key": "VLLM_API_KEY", "base_url": "VLLM_BASE_URL"},
        defaults={"base_url": "http://localhost:8000/v1"},
    ),
    Service("http", {"api_key": "CODEROOM_API_KEY"}, example="//HOST:PORT/v1#NAME"),
)
SERVICES: Final[Mapping[str, Service]] = {service.name: service for service in _SERVICES}
"""The services by the text before the colon; `http` is any server with OpenAI's protocol."""
REPLAY: Final = "replay"


def service_of(text: str) -> tuple[Service, str] | None:
    """The service and the name in the text of a model; `None` for a recording, a file, or only a name."""
    prefix, _, name = text.partition(":")
    service = SERVICES.get("http" if prefix == "https" else prefix)
    return None if service is None else (service, name.strip())


def client_config(text: str, env: Mapping[str, str]) -> dict[str, Any]:
    """The config of the client for the text of a model, whose service is known."""
    found = service_of(text)
    assert found is not None
    service, name = found
    if service.name == "http":
        address, _, name = text.partition("#")
        if not name.strip():
            raise RequestError(f"the model {text!r} has no name; write it after the address, as in {address}#NAME")
        return {**service.config(name.strip(), env), "base_url": address}
    if not name:
        raise RequestError(f"the model {text!r} names nothing after the colon; expected {MODEL_FORMS}")
    return service.config(name, env)


def key_of(model: str, env: Mapping[str, str]) -> str | None:
    """The key of a model of a service with OpenAI's protocol: `NO_KEY` if its server needs none."""
    found = service_of(model)
    return None if found is None or found[0].provider != OPENAI else str(client_config(model, env)["api_key"])


def has_suffix(text: str) -> bool:
    """Whether a text ends like the name of a document."""
    return text.lower().endswith(_SUFFIXES)


def is_model_text(text: str) -> bool:
    """Whether a text says where its model is, perhaps misspelt; the name of an OpenAI model alone does not."""
    prefix, colon, _ = text.partition(":")
    near = bool(colon) and bool(difflib.get_close_matches(prefix, [*SERVICES, REPLAY], 1, _MISSPELT))
    return has_suffix(text) or near


def default_model(env: Mapping[str, str] | None = None) -> str:
    """The model to use if none is given.

    Args:
        env: The variables; by default the environment.

    Returns:
        A text for `make_model`: the value of `CODEROOM_MODEL`, which may be just the name of an OpenAI model, as in the
        shipped teams; else `openai:gpt-4o`.
    """
    named = (os.environ if env is None else env).get(MODEL_VARIABLE, "").strip() or DEFAULT_MODEL
    # The name of an OpenAI model may have colons and slashes.
    return named if is_model_text(named) else f"openai:{named}"


def absolute_model(text: str) -> str:
    """The text of a model, with the absolute path of its file if it has one, so that it means the same elsewhere."""
    kind, _, file = text.partition(":")
    if kind == REPLAY:
        return f"{REPLAY}:{Path(file.strip()).absolute()}"
    return str(Path(text).absolute()) if has_suffix(text) and service_of(text) is None else text


_SPENT = r"insufficient_quota|Error code: 402|(?i:credit balance|insufficient (?:balance|credits|funds))"
_NO_SUCH_MODEL = (
    r"model_not_found|DeploymentNotFound|No endpoints found|not a valid model ID"
    r"|(?i:\bmodels?\b[^.]{0,300}(?:not found|not exist))"
)
_ADVICE = {
    _SPENT: "There is no credit left at the model service, so waiting does not help: check its billing, or use another "
    "key.",
    "AuthenticationError": "Check the key of your model service (OPENAI_API_KEY for `openai:`, CODEROOM_API_KEY for "
    "an address; `coderoom models` lists all), or name another model (--model, or model= from Python).",
    "PermissionDeniedError": "The key of your model service does not allow this model: use another key, or another "
    "model.",
    _NO_SUCH_MODEL: "The model service does not have this model: check its name.",
    "NotFoundError": "There is no model service at {address}: check its base URL, which often ends in /v1 "
    "(OPENAI_BASE_URL for `openai:`; `coderoom models` lists all).",
    "CERTIFICATE_VERIFY_FAILED": "The certificate of the model service at {address} is not trusted: if it is your own, "
    "name the file of its authority in SSL_CERT_FILE.",
    "WRONG_VERSION_NUMBER|(?i:record layer failure)": "The model service at {address} does not speak HTTPS: begin its "
    "address with http://.",
    r"SSL[:\]]": "No secure connection to the model service at {address} could be made: check its address and its "
    "certificate.",
    "TooManyRedirects": "The model service at {address} sends requests to another address: check its base URL.",
    "DecodingError": "The answer of the model service at {address} is damaged: try again later.",
    "RemoteProtocolError|ReadError|WriteError": "The model service closed the connection before its answer was "
    "complete, or its answer was empty: try again later.",
    "APIConnectionError": "No model service could be reached at {address}: check it (OPENAI_BASE_URL for `openai:`, "
    "VLLM_BASE_URL for `vllm:`; `coderoom models` lists all) and the network.",
    "Failed to connect to Ollama": "Its address is that of OLLAMA_HOST, or else http://127.0.0.1:11434.",
    "APITimeoutError": "The model service did not answer in time: try again later.",
    "RateLimitError": "The model service asks for a pause: try again later.",
    # The openai package accepts any page as an answer.
    "object has no attribute 'usage|misread|The answer was empty|the answer is no reply": "The server at this "
    "address does not speak OpenAI's protocol: check its base URL (OPENAI_BASE_URL for `openai:`), in which /v1 may be "
    "missing.",
    "InternalServerError": "The model service reports an internal error: try again later.",
    "content_filter": "The model service's content filter refused this: rephrase it.",
    "context_length_exceeded|(?i:context (?:length|size|window))": "Give the agents a bounded model_context, or a "
    "shorter task.",
    r"(?i:not support tool|tool[^.]{0,40}not (?:supported|enabled|allowed))": "The model service does not let this "
    "model call tools: use another model, or agents without tools and handoffs.",
    r"Error code: (?:408|409|425)|APIError\b": "The model service reports an error of its own: try again later.",
    r"Error code: 413": "The request is too large for the model service: give the agents a bounded model_context.",
    r"Error code: 4\d\d": "The model service refused the request: check the model's name and its settings.",
}
MARKERS: Final = {
    "no credit": re.compile(_SPENT),
    "no key": re.compile("api_key"),
    "no streams": re.compile("stream", re.IGNORECASE),
    "wrong beside its arguments": re.compile(
        r"context.?length|content.?filter|credit|\bmodel\b.*(?:not exist|not found)", re.IGNORECASE
    ),
}
"""What model services and their packages say in words only, and what is done depends on."""
_MISREAD = re.compile(r"File .*autogen_ext.models.*\n.*\n(?:[ ~^]*\n)*(?:TypeError: 'NoneType'|IndexError: list index)")
_LONGEST = 500


def advice_for(cause: BaseException) -> str:
    """The advice for an exception; empty if there is none."""
    text, url = _signs(cause), getattr(vars(cause).get("request"), "url", None)
    if url is not None and not url.scheme:
        return (
            "The address of the model service must begin with http:// or https://: check it (OPENAI_BASE_URL for "
            "`openai:`; `coderoom models` lists all)."
        )
    # Not all of it: there may be a password before the host, or a key after the path.
    address = f"{url.scheme}://{url.netloc.decode()}{url.path.removesuffix('/chat/completions')}" if url else ""
    advice = next((advice for sign, advice in _ADVICE.items() if re.search(rf"\b(?:{sign})", text)), "")
    return advice.format(address=address or "this address")


_TRANSIENT = frozenset(
    [
        *("APIConnectionError", "APITimeoutError", "ConnectionError", "InternalServerError", "RateLimitError"),
        *("TimeoutError", "TransportError"),
    ]
)
"""Names of the exceptions after which a retry may help. By name, since no client is imported here."""


def is_transient(cause: BaseException) -> bool:
    """Whether a request to a model failed for a reason that may pass by itself."""
    found = list(causes_of(cause))
    names = {kind.__name__ for each in found for kind in type(each).__mro__}
    passing = names & _TRANSIENT or any(getattr(each, "status_code", None) == 408 for each in found)
    return bool(passing) and not is_out_of_credit(cause)


def is_out_of_credit(cause: BaseException) -> bool:
    """Whether a model service refuses requests until somebody pays, so that waiting does not help."""
    return says(_signs(cause), "no credit")


def says(error: object, meaning: str) -> bool:
    """Whether the text of an error has one of the `MARKERS`."""
    return MARKERS[meaning].search(str(error)) is not None


def _signs(cause: BaseException) -> str:
    # Not every version of OpenAI's package has the code in the text.
    causes = " ".join(f"{type(each).__name__} {each}" for each in reversed([*causes_of(cause)]))
    # A client of AutoGen's stumbles over what is not of its protocol; its own teams put the traceback into the message.
    is_misread = _MISREAD.search("".join(format_exception(cause))) is not None
    return f"{causes} {getattr(cause, 'code', '')} {'misread' if is_misread else ''}"


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """An exception, and those that it was raised from."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def said(cause: BaseException) -> str:
    """What an exception says, in a line: of an error of a model service, only its message."""
    body = getattr(cause, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else body
    message = inner.get("message") if isinstance(inner, dict) else None
    line = " ".join((message if isinstance(message, str) and message.strip() else str(cause)).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def in_words(who: str, cause: BaseException) -> str:
    """Say who failed and why, with advice if there is any."""
    advice = advice_for(cause)
    # AutoGen's own teams put the whole traceback into the message.
    what = said(cause) if hasattr(cause, "status_code") else str(cause).partition("\nTraceback")[0]
    text = f"{who} failed: {type(cause).__name__}: {what}".rstrip(": ")
    return f"{text.rstrip('.')}. {advice}" if advice else text
