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
from coderoom.configs.loading import build, examine
from coderoom.configs.reading import find_source, has_suffix, looks_like_path, read_document
from coderoom.configs.replay import ReplayModel, ReplayModelConfig
from coderoom.configs.yaml import did_you_mean
from coderoom.errors import MissingDependencyError, RequestError

_MODEL_VARIABLE = "CODEROOM_MODEL"
_DEFAULT_MODEL = "gpt-4o"
"""The same as in the shipped teams."""

_FORMS = "openai:NAME, ollama:NAME, anthropic:NAME, replay:FILE, or a YAML or JSON file with one model component"

_UNKNOWN_MODEL = {
    "vision": False,
    "function_calling": True,
    "json_output": True,
    "structured_output": True,
    "family": "unknown",
    "multiple_system_messages": True,
}
_HOSTED = {"gemini-": "GEMINI_API_KEY", "claude-": "ANTHROPIC_API_KEY", "Llama-": "LLAMA_API_KEY"}
"""Names for which AutoGen's OpenAI client uses another host, and the variable with its key."""


def make_model(spec: str, *, env: Mapping[str, str] | None = None, trust: Sequence[str] = ()) -> ChatCompletionClient:
    """Make a model client.

    Args:
        spec: `openai:NAME`, `ollama:NAME`, `anthropic:NAME`, `replay:FILE`, or a path to a YAML or JSON file that
            holds one model component.
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
    named = (os.environ if env is None else env).get(_MODEL_VARIABLE, "").strip() or _DEFAULT_MODEL
    # The name of an OpenAI model may have colons and slashes.
    return named if has_suffix(named) or named.partition(":")[0] in _MAKERS else f"openai:{named}"


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
        client = client_class(**arguments, model_info=dict(_UNKNOWN_MODEL))
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
}
