"""A pytest plugin: tests that ask a model once, and a recording of it from then on.

```python
@pytest.mark.coderoom_replay
async def test_the_team_computes() -> None:
    result = await load_team("team.yaml").run(task="What is 6 * 7?")
    assert "42" in result.messages[-1].content
```

The first run needs the key of the model service and writes `recordings/FILE-TEST.jsonl` beside the test's file. Later
runs read it, without network and key, in CI too. `pytest --coderoom-record` records again.

Also the suites that prove a wall, an engine or a language: `WallConformance`, `EngineConformance`,
`PythonEngineConformance`, `LanguageConformance` (see `docs/plugins.md`).
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from contextlib import aclosing
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from autogen_core.models import CreateResult

    from coderoom.testing.engines import EngineConformance, PythonEngineConformance
    from coderoom.testing.languages import LanguageConformance
    from coderoom.testing.walls import WallConformance

__all__ = ["EngineConformance", "LanguageConformance", "PythonEngineConformance", "WallConformance"]

_SUITES: Final = {
    "EngineConformance": "engines",
    "LanguageConformance": "languages",
    "PythonEngineConformance": "engines",
    "WallConformance": "walls",
}

MARKER: Final = "coderoom_replay"
_HELP: Final = "coderoom_replay(file=None): ask models once, and take their replies from a recording from then on"
_CLIENTS: Final = ("openai.OpenAI", "anthropic.Anthropic", "ollama.Ollama", "azure.AzureAI")
"""The clients that ask services, in `autogen_ext.models`, without the end that all their names have."""
_SERVERS: Final = ("OPENAI_BASE_URL", "OLLAMA_HOST", "CODEROOM_MODEL")
"""What may name a model that needs no key."""
_KEYS: Final = ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY")


def __getattr__(name: str) -> Any:
    # Every run of pytest imports this plugin, few need the suites.
    if name not in _SUITES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    pytest.register_assert_rewrite("coderoom.testing.engines", "coderoom.testing.languages", "coderoom.testing.walls")
    return getattr(importlib.import_module(f"coderoom.testing.{_SUITES[name]}"), name)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--coderoom-record`."""
    parser.getgroup("coderoom").addoption(
        "--coderoom-record", action="store_true", help=f"Record the tests marked {MARKER} again."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _HELP)


@pytest.fixture(autouse=True)
def _coderoom_replay(request: pytest.FixtureRequest) -> Iterator[None]:
    marker = request.node.get_closest_marker(MARKER)
    if marker is None:
        yield
        return
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    named = marker.args[0] if marker.args else marker.kwargs.get("file")
    file = request.path.parent / (named or Path("recordings") / _file_name(request))
    if file.exists() and not request.config.getoption("--coderoom-record"):
        _replay(file, monkeypatch)
        yield
        return
    if not any(os.environ.get(name) for name in (*_KEYS, *_SERVERS)):
        services = f"Set one of {', '.join(_KEYS)}; for a service without a key, one of {', '.join(_SERVERS)}."
        pytest.fail(f"There is no recording {file}, and no key to make one. {services}", False)
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".unfinished")
    _record(unfinished, monkeypatch)
    yield
    if getattr(request.node, "coderoom_passed", False):
        unfinished.replace(file)
    else:
        unfinished.unlink()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note whether a test has passed: the recording of one that has not is not kept."""
    report = yield
    if call.when == "call":
        item.coderoom_passed = report.passed  # type: ignore[attr-defined]
    return report


def _file_name(request: pytest.FixtureRequest) -> str:
    return re.sub(r"[^\w.-]+", "-", f"{request.path.stem}-{request.node.name}").strip("-") + ".jsonl"


def _record(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from autogen_core.models import CreateResult

    from coderoom.configs import known_secrets
    from coderoom.models.watching import facts_of, request_of
    from coderoom.runs import Recorder
    from coderoom.steps import MODEL

    recorder = Recorder(file)

    def keep(client: Any, messages: Any, arguments: Mapping[str, Any], result: CreateResult) -> None:
        recorder.hide_values(known_secrets())
        request = request_of(facts_of(client), messages, arguments)
        recorder.keep(MODEL, request, result.model_dump(mode="json"), 0.0, known=False)

    def recorded(create: Any, create_stream: Any) -> tuple[Any, Any]:
        @wraps(create)
        async def ask(client: Any, messages: Any, **arguments: Any) -> CreateResult:
            result: CreateResult = await create(client, messages, **arguments)
            keep(client, messages, arguments, result)
            return result

        @wraps(create_stream)
        async def stream(client: Any, messages: Any, **arguments: Any) -> AsyncGenerator[str | CreateResult, None]:
            async with aclosing(create_stream(client, messages, **arguments)) as items:
                async for item in items:
                    if isinstance(item, CreateResult):
                        keep(client, messages, arguments, item)
                    yield item

        return ask, stream

    _patch(monkeypatch, recorded)


def _replay(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from coderoom.configs import RecordedModel

    model = RecordedModel(file)
    for name in _KEYS:
        if not os.environ.get(name):
            monkeypatch.setenv(name, "replayed")

    def replayed(create: Any, create_stream: Any) -> tuple[Any, Any]:
        ask = wraps(create)(lambda client, messages, **arguments: model.create(messages, **arguments))
        stream = wraps(create_stream)(lambda client, messages, **arguments: model.create_stream(messages, **arguments))
        return ask, stream

    _patch(monkeypatch, replayed)


def _patch(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any, Any], tuple[Any, Any]]) -> None:
    """Change how the clients of services ask."""
    for path in _CLIENTS:
        module, _, name = path.partition(".")
        try:
            client = getattr(importlib.import_module(f"autogen_ext.models.{module}"), f"{name}ChatCompletionClient")
        except ImportError:  # An extra that is not installed.
            continue
        base = next(each for each in client.__mro__ if "create" in vars(each))
        create, create_stream = change(base.create, base.create_stream)
        monkeypatch.setattr(base, "create", create)
        monkeypatch.setattr(base, "create_stream", create_stream)
