"""The language `perl` of `solve`: each call runs in a Perl of its own, which a function of Python starts."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from coderoom.generation import CodeProblem, FunctionSpec, FunctionTest, Language
from coderoom.generation.languages import binding_problem, parameter_problems


class Perl:
    """Calls functions of Perl. Its source runs in sessions, too (Python 3.8, standard library)."""

    def __init__(self) -> None:
        self.text = ""

    def define(self, name: str, source: str, parameters: Sequence[str]) -> Callable[..., Any]:
        """Add the code of a function, and return the function."""
        text = f'{self.text}\n#line 1 "{name}"\n{source}\n'
        self.run(text, "BEGIN", [])  # Loading it is all that happens.
        self.text = text

        def call(*_given: Any, **_inputs: Any) -> Any:
            values = [*_given, *(_inputs.pop(each) for each in parameters if each in _inputs), *_inputs.values()]
            return self.run(self.text, name, values)

        call.__wrapped__ = eval(f"lambda {', '.join(parameters)}: None")  # type: ignore[attr-defined]
        return call

    def run(self, text: str, name: str, values: Sequence[Any]) -> Any:
        """Call a function in a new Perl: its value, or an exception with the class and the message of its error."""
        import json
        import subprocess
        import sys
        import tempfile

        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as answer:
            given.write(json.dumps([name, values]).encode())
            given.seek(0)
            fds = [given.fileno(), answer.fileno()]
            head = "use strict; use warnings; use JSON::PP;\n"
            tail = """
no strict "refs";
package main;
my $json = JSON::PP->new->utf8->allow_nonref;
open(my $in, "<&=", $ARGV[0]); open(my $out, ">&=", $ARGV[1]);
my ($name, $values) = @{$json->decode(do { local $/; <$in> })};
close($in);
my $call = $name eq "BEGIN" ? sub { undef } : \\&{"main::$name"};
my $said = eval { $json->encode({value => scalar $call->(@$values)}) };
print $out $said // $json->encode({error => ref $@ || "Died", message => "$@"});
"""
            command = ["perl", "-", *map(str, fds)]
            done = subprocess.run(
                command, input=(head + text + tail).encode(), stdout=-1, stderr=-1, pass_fds=fds, check=False
            )
            sys.stdout.write(done.stdout.decode(errors="replace"))
            answer.seek(0)
            said = answer.read().decode()
        if not said:
            raise SyntaxError(done.stderr.decode(errors="replace").strip() or "the code has ended Perl")
        found = json.loads(said)
        if "error" in found:
            raise type(found["error"].rpartition(":")[2], (Exception,), {})(found["message"].strip())
        return found["value"]


_SUPPORT = f"from typing import Any, Callable, Sequence\n\n\n{inspect.getsource(Perl)}\n\n"
_MISSING = "None if __import__('shutil').which('perl') else 'it has no perl'"
_SUB = re.compile(r"^sub (\w+)\s*\{\s*(?:my \(([^)]*)\) = @_;)?", re.MULTILINE)


class PerlLanguage(Language):
    """Perl 5 with JSON::PP, which is a part of it."""

    name = "perl"
    labels = frozenset({"perl", "pl"})
    suffix = ".pl"
    reserved = frozenset({"sub", "my", "our", "local", "foreach", "unless", "until", "eq", "ne", "last", "next"})
    ways = (
        "Perl 5 under strict and warnings, with core modules only. A function begins with `sub NAME { my ($a, $b) "
        "= @_;` at the start of a line, its inputs in the order of the spec. It returns one scalar: numbers, text, "
        "undef, references to arrays and hashes, or JSON::PP::true and false. An error is `die` with a text that ends "
        'with a newline, which a test expects as "expected_error": "Died", or with an object, expected by its class.'
    )

    def signature(self, spec: FunctionSpec) -> str:
        """See `Language.signature`."""
        inputs = ", ".join(f"${each.name}" for each in spec.inputs)
        return f"sub {spec.name} {{ {f'my ({inputs}) = @_;' if inputs else ''}".rstrip()

    def check(
        self,
        source: str,
        spec: FunctionSpec,
        *,
        taken: Mapping[str, str] | None = None,
        allowed_imports: Collection[str] | None = None,
    ) -> list[CodeProblem]:
        """See `Language.check`; what Perl itself refuses is found when the code is loaded."""
        found = [binding_problem(name, spec, taken) for name in self.names_defined(source)]
        parameters = {each[1]: re.findall(r"\$(\w+)", each[2] or "") for each in _SUB.finditer(source)}
        if spec.name not in parameters:
            found.append(f"it does not define the function {spec.name!r}")
        else:
            found += parameter_problems(spec, [(each, False) for each in parameters[spec.name]])
        return [CodeProblem(line=None, text=text) for text in found if text]

    def names_defined(self, source: str) -> list[str]:
        """See `Language.names_defined`."""
        return [each[1] for each in _SUB.finditer(source)]

    def load(self, sources: Collection[str]) -> str:
        """See `Harness.load`."""
        return f"{super().load(sources)}{_SUPPORT}coderoom_perl = Perl()\n{_MISSING}"

    def define(self, function: str, source: str) -> str:
        """See `Harness.define`."""
        found = next((each[2] for each in _SUB.finditer(source) if each[1] == function), None)
        parameters = re.findall(r"\$(\w+)", found or "")
        return f"globals()[{function!r}] = coderoom_perl.define({function!r}, {source!r}, {parameters!r})\n"

    def error_matches(self, expected: str, types: Sequence[str], base: str) -> bool:
        """See `Harness.error_matches`."""
        return expected in types

    def write_module(self, implementations: Mapping[str, str], about: str) -> str:
        """See `Language.write_module`."""
        head = "# " + about.replace("\n", "\n# ") + "\nuse strict;\nuse warnings;"
        return "\n\n".join([head, *(source.strip() for source in implementations.values()), "1;"]) + "\n"

    def tests_file(self, module: str) -> str:
        """See `Language.tests_file`; `prove` runs it."""
        return f"{module}.t"

    def write_tests(
        self, tests: Mapping[str, Sequence[FunctionTest]], module: str, specs: Sequence[FunctionSpec] = ()
    ) -> dict[str, str]:
        """See `Language.write_tests`; tests with a property or with steps are left out."""
        lines = ["use strict;", "use warnings;", "use FindBin;", "use JSON::PP;", "use Test::More;"]
        lines += [f'require "$FindBin::Bin/{module}.pl";', "my $json = JSON::PP->new->allow_nonref;"]
        order = {spec.name: [each.name for each in spec.inputs] for spec in specs}
        for function, cases in tests.items():
            for test in cases:
                names = order.get(function, list(test.inputs))
                given = f"@{{$json->decode({_quoted([test.inputs[each] for each in names if each in test.inputs])})}}"
                call = f"scalar main::{function}({given})"
                if test.expects == "output" and not test.has_steps:
                    expected = f"$json->decode({_quoted(test.expected_output)})"
                    lines.append(f"is_deeply({call}, {expected}, {_quoted(test.name)});")
                elif test.expects == "error" and not test.has_steps:
                    message = f"qr/\\Q{test.error_message or ''}\\E/i"
                    lines.append(f"ok(!eval {{ {call}; 1 }}, {_quoted(test.name)}); like($@, {message});")
        return {self.tests_file(module): "\n".join([*lines, "done_testing();", ""])}


def _quoted(data: Any) -> str:
    """Data as JSON in a literal of Perl."""
    text = json.dumps(data)
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
