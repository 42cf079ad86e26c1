"""The options of the generator: the same in Python, in team files and on the command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from coderoom.agents import CodeGeneratorAgent
from coderoom.configs import ReplayModel
from coderoom.errors import RequestError
from coderoom.generation import AICodeGenerator, GeneratorArguments, GeneratorOptions
from tests.support.commands import coderoom

AS_OBJECTS = {"language", "cache", "embeddings"}  # `AICodeGenerator` takes objects for these, too.


def test_the_types_of_keyword_arguments_are_those_of_all_fields() -> None:
    assert GeneratorArguments.__annotations__.keys() | AS_OBJECTS == GeneratorOptions.model_fields.keys()


def test_the_command_has_an_option_for_each_field_with_its_text(tmp_path: Path) -> None:
    words = " ".join(coderoom("solve", "--help", cwd=tmp_path).stdout.split())
    for name, field in GeneratorOptions.model_fields.items():
        assert f"--{name.replace('_', '-')} " in words
        assert name == "wall" or " ".join(str(field.description).split()) in words
    assert coderoom("solve", "x", "--max-atempts", "3", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_attempts": 0}, "max_attempts=0 must be at least 1."),
        ({"test_timeout": float("nan")}, "test_timeout=nan must be at least 0.01."),
        ({"block_severity": "much"}, "block_severity='much': input should be 'low', 'medium', 'high' or 'none'."),
        ({"allowed_imports": ["os,sys"]}, "allowed_imports: 'os,sys' is not a module name."),
        ({"wall": "dokcer"}, "Did you mean 'docker'?"),
    ],
)
def test_a_wrong_value_is_refused_in_words(options: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=re.escape(words)):
        GeneratorOptions.checked(options)


def test_an_argument_that_there_is_not_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError, match="max_atempts"):
        AICodeGenerator(ReplayModel(["x"]), max_atempts=3)  # type: ignore[call-arg]


def test_no_limit_stays_none_in_a_dump() -> None:
    agent = CodeGeneratorAgent("generator", ReplayModel(["x"]), max_seconds=None)
    dumped = agent.dump_component()
    assert dumped.config["max_seconds"] is None
    assert CodeGeneratorAgent.load_component(dumped).dump_component() == dumped
