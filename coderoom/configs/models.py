"""Makes model clients from short texts: `openai:gpt-4o`, `ollama:llama3.2`, `anthropic:NAME`, `replay:FILE`, a file.

The packages of the model services are imported when one of their models is made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from autogen_core.models import ChatCompletionClient

from coderoom.configs.checking import check_config
from coderoom.configs.components import MODEL, how_to_install
from coderoom.configs.loading import UNKNOWN_MODEL, build, examine
from coderoom.configs.reading import MODEL_VARIABLE, find_source, is_model_text, looks_like_path, read_document
from coderoom.configs.replay import ReplayModel, ReplayModelConfig
from coderoom.configs.yaml import did_you_mean
from coderoom.errors import MissingDependencyError, RequestError

_AZURE_VERSION = "2024-10-21"
_DEFAULT_MODEL = "gpt-4o"
"""The same as in the shipped teams."""

_FORMS = (
    "openai:NAME, azure:DEPLOYMENT, anthropic:NAME, ollama:NAME, gemini:NAME, openrouter:NAME, vllm:NAME, "
    "http://HOST/v1#NAME, replay:FILE, or a YAML or JSON file with one model component"
)

_COMPATIBLE = {
    "gemini": ("https://generativelanguage.googleapis.com/v1beta/openai/", "GEMINI"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER"),
    "vllm": ("http://localhost:8000/v1", "VLLM"),
}
"""Services with OpenAI's protocol: the address, and how the variables for another one and for the key begin."""

_HOSTED = {"gemini-": "GEMINI_API_KEY", "claude-": "ANTHROPIC_API_KEY", "Llama-": "LLAMA_API_KEY"}
"""Names for which AutoGen's OpenAI client uses another host, and the variable with its key."""


def make_model(spec: str, *, env: Mapping[str, str] | None = None, trust: Sequence[str] = ()) -> ChatCompletionClient:
    """Make a model client.

    Args:
        spec: `openai:NAME`, `azure:DEPLOYMENT`, `anthropic:NAME`, `ollama:NAME`, `gemini:NAME`, `openrouter:NAME`,
            `vllm:NAME`, `http://HOST/v1#NAME` for any server with OpenAI's protocol, `replay:FILE`, or a path to a YAML
            or JSON file that holds one model component.
        env: The variables with keys and addresses; by default the environment.
        trust: Namespaces whose providers a file may name, besides `autogen_*` and `coderoom`.

    Returns:
        The client.

    Raises:
        RequestError: The text has none of these forms, or the file is not there.
        ConfigError: The file has mistakes.
        MissingDependencyError: A package is not installed, or a key is not set.
    """
    env = os.environ if env is None else env
    prefix, colon, name = spec.partition(":")
    if prefix in ("http", "https"):
        address, _, name = spec.partition("#")
        if not name:
            raise RequestError(f"the model {spec!r} has no name; write it after the address, as in {address}#NAME")
        return _at(address, name, env.get("CODEROOM_API_KEY"))
    if colon and prefix in _MAKERS:
        if not name.strip():
            raise RequestError(f"the model {spec!r} names nothing after the colon; expected {_FORMS}")
        try:
            return _MAKERS[prefix](name.strip(), env)
        except ImportError as error:
            raise MissingDependencyError(f"the model {spec!r} cannot be used: {how_to_install(error)}") from error
    if looks_like_path(spec):
        checked = examine(find_source(spec), MODEL, trust, env)
        checked.refuse_mistakes()
        return build(checked, ChatCompletionClient)  # type: ignore[type-abstract]
    hint = did_you_mean(f"{prefix}:", [f"{known}:" for known in _MAKERS])
    raise RequestError(f"there is no model {spec!r}{hint}; expected {_FORMS}")


def resolve_model(
    model: ChatCompletionClient | str, *, env: Mapping[str, str] | None = None, trust: Sequence[str] = ()
) -> ChatCompletionClient:
    """Return a model client, or make one from a text.

    Args:
        model: A client, or a text that `make_model` understands.
        env: As for `make_model`.
        trust: As for `make_model`.

    Raises:
        RequestError: It is neither, or as `make_model`.
        ConfigError: As `make_model`.
        MissingDependencyError: As `make_model`.
    """
    if isinstance(model, str):
        return make_model(model, env=env, trust=trust)
    if not isinstance(model, ChatCompletionClient):
        raise RequestError(f"expected a model client or a text such as 'openai:gpt-4o', got {model!r}")
    return model


def default_model(env: Mapping[str, str] | None = None) -> str:
    """The model to use if none is given.

    Args:
        env: The variables; by default the environment.

    Returns:
        A text for `make_model`: the value of `CODEROOM_MODEL`, which may be just the name of an OpenAI model, as in the
        shipped teams; else `openai:gpt-4o`.
    """
    named = (os.environ if env is None else env).get(MODEL_VARIABLE, "").strip() or _DEFAULT_MODEL
    # The name of an OpenAI model may have colons and slashes.
    return named if is_model_text(named) else f"openai:{named}"


def _openai(name: str, env: Mapping[str, str]) -> ChatCompletionClient:
    base_url = env.get("OPENAI_BASE_URL")
    variable = "OPENAI_API_KEY"
    if not base_url:
        variable = next((key for start, key in _HOSTED.items() if name.startswith(start)), variable)
    key = env.get(variable)
    if not key and not base_url:
        raise MissingDependencyError(
            f"the model 'openai:{name}' needs a key: set {variable}, set OPENAI_BASE_URL for a server that needs none, "
            "or use --model (model= from Python) with another one"
        )
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    # The client requires a key; the user's own server often does not.
    arguments: dict[str, Any] = {"model": name, "api_key": key or "none"}
    if base_url:
        arguments["base_url"] = base_url
    client: Any = _known_or_not(OpenAIChatCompletionClient, arguments)
    # A service reports the token usage of a stream only on request, and AutoGen's assistant does not request it.
    client.create_stream = partial(client.create_stream, include_usage=True)
    return cast("ChatCompletionClient", client)


def _at(address: str, name: str, key: str | None) -> ChatCompletionClient:
    """A model of a server with OpenAI's protocol, which may need no key."""
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    client: Any = OpenAIChatCompletionClient(
        model=name, base_url=address, api_key=key or "none", model_info=cast("Any", dict(UNKNOWN_MODEL))
    )
    client.create_stream = partial(client.create_stream, include_usage=True)
    return cast("ChatCompletionClient", client)


def _compatible(service: str, name: str, env: Mapping[str, str]) -> ChatCompletionClient:
    address, start = _COMPATIBLE[service]
    given, key = env.get(f"{start}_BASE_URL"), env.get(f"{start}_API_KEY")
    if not key and not given and not address.startswith("http://localhost"):
        raise MissingDependencyError(f"the model '{service}:{name}' needs a key: set {start}_API_KEY")
    return _at(given or address, name, key)


def _azure(name: str, env: Mapping[str, str]) -> ChatCompletionClient:
    from autogen_ext.models.openai import AzureOpenAIChatCompletionClient

    endpoint, key = env.get("AZURE_OPENAI_ENDPOINT"), env.get("AZURE_OPENAI_API_KEY")
    missing = [name for name in ("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY") if not env.get(name)]
    if missing:
        raise MissingDependencyError(f"the model 'azure:{name}' needs {' and '.join(missing)}")
    version = env.get("OPENAI_API_VERSION") or _AZURE_VERSION
    arguments = {"azure_deployment": name, "azure_endpoint": endpoint, "api_key": key, "api_version": version}
    client: Any = _known_or_not(AzureOpenAIChatCompletionClient, {"model": name, **arguments})
    client.create_stream = partial(client.create_stream, include_usage=True)
    return cast("ChatCompletionClient", client)


def _anthropic(name: str, env: Mapping[str, str]) -> ChatCompletionClient:
    from autogen_ext.models.anthropic import AnthropicChatCompletionClient

    key = env.get("ANTHROPIC_API_KEY")
    if not key:
        raise MissingDependencyError(
            f"the model 'anthropic:{name}' needs a key: set ANTHROPIC_API_KEY, or use --model with another one"
        )
    arguments: dict[str, Any] = {"model": name, "api_key": key}
    if env.get("ANTHROPIC_BASE_URL"):
        arguments["base_url"] = env["ANTHROPIC_BASE_URL"]
    return _known_or_not(AnthropicChatCompletionClient, arguments)


def _ollama(name: str, env: Mapping[str, str]) -> ChatCompletionClient:
    from autogen_ext.models.ollama import OllamaChatCompletionClient

    arguments: dict[str, Any] = {"model": name}
    if env.get("OLLAMA_HOST"):
        arguments["host"] = env["OLLAMA_HOST"]
    return _known_or_not(OllamaChatCompletionClient, arguments)


def _known_or_not(client_class: Any, arguments: dict[str, Any]) -> ChatCompletionClient:
    try:
        client = client_class(**arguments)
    except ValueError as error:
        if "model_info" not in str(error):
            raise RequestError(f"the model {arguments['model']!r} was refused: {error}") from error
        client = client_class(**arguments, model_info=dict(UNKNOWN_MODEL))
    return cast("ChatCompletionClient", client)


def _replay(name: str, env: Mapping[str, str]) -> ReplayModel:
    document = read_document(find_source(name if looks_like_path(name) else f"./{name}"))
    if isinstance(document.data, list):
        document = document.under("replies")
    checked = check_config(document, ReplayModelConfig)
    checked.refuse_mistakes()
    config = ReplayModelConfig.model_validate({"name": Path(name).name, **checked.data})
    return ReplayModel(config.replies, config.model_info, name=config.name)


_MAKERS: dict[str, Callable[[str, Mapping[str, str]], ChatCompletionClient]] = {
    "openai": _openai,
    "ollama": _ollama,
    "anthropic": _anthropic,
    "replay": _replay,
    "azure": _azure,
    **{service: partial(_compatible, service) for service in _COMPATIBLE},
}
