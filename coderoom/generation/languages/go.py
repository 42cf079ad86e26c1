"""`GoLanguage`: functions in Go, which are compiled in the session."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from coderoom.generation.languages.compiled import CompiledLanguage

# A package of its own: it begins before the code does, and the code cannot replace what it uses.
_SERVE = """\
package SECRET

import ("bufio"; "encoding/json"; "errors"; "fmt"; "io"; "math"; "os"; "reflect"; "runtime"; "strconv"; "strings")
import ("time"; "unicode/utf8")

var requests, answers *os.File
var secret, kept = make([]byte, 32), false

func init() {
	there, _ := strconv.Atoi(os.Args[1])
	here, _ := strconv.Atoi(os.Args[2])
	kept = os.Args[3] == "1"
	os.Args = os.Args[:1]
	requests, answers = os.NewFile(uintptr(there), "requests"), os.NewFile(uintptr(here), "answers")
	io.ReadFull(requests, secret)
}

func given(text json.RawMessage, kind reflect.Type) reflect.Value {
	made := reflect.New(kind).Elem()
	var items []json.RawMessage
	var named map[string]json.RawMessage
	var special map[string]string
	switch {
	case kind.Kind() == reflect.Float64 && text[0] == '{':
		json.Unmarshal(text, &special)
		number, _ := strconv.ParseFloat(special["$float"], 64)
		made.SetFloat(number)
	case kind.Kind() == reflect.Slice:
		json.Unmarshal(text, &items)
		made.Set(reflect.MakeSlice(kind, 0, len(items)))
		for _, item := range items {
			made.Set(reflect.Append(made, given(item, kind.Elem())))
		}
	case kind.Kind() == reflect.Map:
		json.Unmarshal(text, &named)
		made.Set(reflect.MakeMap(kind))
		for name, item := range named {
			made.SetMapIndex(reflect.ValueOf(name), given(item, kind.Elem()))
		}
	case kind.Kind() == reflect.Pointer && string(text) != "null":
		made.Set(reflect.New(kind.Elem()))
		made.Elem().Set(given(text, kind.Elem()))
	default:
		if err := json.Unmarshal(text, made.Addr().Interface()); err != nil {
			panic(err)
		}
	}
	return made
}

func data(value reflect.Value) any {
	switch value.Kind() {
	case reflect.Float64:
		number := value.Float()
		if math.IsNaN(number) || math.IsInf(number, 0) {
			return map[string]string{"$float": fmt.Sprint(number)}
		}
	case reflect.String:
		if !utf8.ValidString(value.String()) {
			return map[string]any{"bytes": []byte(value.String())}
		}
	case reflect.Slice:
		items := []any{}
		for place := 0; place < value.Len(); place++ {
			items = append(items, data(value.Index(place)))
		}
		return items
	case reflect.Map:
		items := map[string]any{}
		for _, name := range value.MapKeys() {
			items[name.String()] = data(value.MapIndex(name))
		}
		return items
	case reflect.Pointer:
		if value.IsNil() {
			return nil
		}
		return data(value.Elem())
	}
	return value.Interface()
}

func failure(names []string, why ...any) map[string]any {
	return map[string]any{"error": names, "message": fmt.Sprint(why...)}
}

func answered(results, inputs []reflect.Value) map[string]any {
	after := []any{}
	for _, input := range inputs {
		after = append(after, data(input))
	}
	if why := results[len(results)-1].Interface(); why != nil {
		err, names := why.(error), []string{}
		for each := err; each != nil; each = errors.Unwrap(each) {
			if name := strings.TrimLeft(fmt.Sprintf("%T", each), "*"); strings.HasPrefix(name, "main.") {
				names = append(names, name[5:])
			}
		}
		return failure(append(names, "Error"), err.Error())
	} else if len(results) == 1 {
		return map[string]any{"value": nil, "after": after}
	}
	return map[string]any{"value": data(results[0]), "after": after}
}

func run(function reflect.Value, texts []json.RawMessage) (said map[string]any, result reflect.Value) {
	defer func() {
		if why := recover(); why != nil {
			said = failure([]string{}, "panic: ", why)
		}
	}()
	inputs := []reflect.Value{}
	for place, text := range texts {
		inputs = append(inputs, given(text, function.Type().In(place)))
	}
	results := function.Call(inputs)
	return answered(results, inputs), append([]reflect.Value{reflect.ValueOf(0)}, results...)[len(results)-1]
}

func Serve(functions map[string]any) {
	decoder := json.NewDecoder(bufio.NewReader(requests))
	before, was, pauses := reflect.ValueOf(0), "0", 20
	for {
		var asked struct{ Function, Folder string; Inputs []json.RawMessage }
		if decoder.Decode(&asked) != nil {
			return
		}
		os.Chdir(asked.Folder)
		said, result := run(reflect.ValueOf(functions[asked.Function]), asked.Inputs)
		for ; kept && pauses > 0 && runtime.NumGoroutine() > 1; pauses-- {
			time.Sleep(10 * time.Millisecond)
		}
		if kept && fmt.Sprint(data(before)) != was {
			said = failure([]string{}, "what an earlier call has returned is another value now")
		} else if kept && runtime.NumGoroutine() > 1 {
			said["left"] = "a goroutine"
		}
		if result.IsValid() {
			before, was = result, fmt.Sprint(data(result))
		}
		text, _ := json.Marshal(said)
		answers.Write(append(append(append([]byte{}, secret...), text...), 10))
	}
}
"""
_MAIN = """\
package main

import "program/SECRET"

func main() { SECRET.Serve(map[string]any{LINKS}) }
"""
_WORDS = (
    "any append bool break byte cap case chan close comparable complex complex128 complex64 const continue copy "
    "default defer delete else error fallthrough false float32 float64 for func go goto if imag import init int int16 "
    "int32 int64 int8 interface iota len main make map new nil package panic print println range real recover return "
    "rune select string struct switch true type uint uint16 uint32 uint64 uint8 uintptr var"
)
_BLOCK = re.compile(r"^import\s*\(([^)]*)\)[^\n]*$|^import[ \t]+([^\n(]+)$", re.MULTILINE | re.DOTALL)
_GROUP = re.compile(r"^(?:var|const|type)\s*\((.*?)^\)", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"^(?:func|type|var|const)\s+(\w+)", re.MULTILINE)


class GoLanguage(CompiledLanguage):
    """Go, tested in a session of the engine `cpython`: each call runs in a process of its own.

    Go must be installed where the code runs (`apt-get install golang-go`).
    """

    name = "go"
    labels = frozenset({"go", "golang"})
    suffix = ".go"
    reserved = frozenset(_WORDS.split())
    commands: ClassVar[dict[str, str]] = {"go": "golang-go"}
    types: ClassVar[dict[str, str]] = {
        **{"str": "string", "int": "int", "float": "float64", "bool": "bool"},
        **{"list": "[]{}", "dict": "map[string]{}", "optional": "*{}"},
    }
    how: ClassVar[dict[str, Any]] = {
        "head": "package main",
        "bits": 63,
        "files": {"main.go": _MAIN, "SECRET/serve.go": _SERVE, "go.mod": "module program\n\ngo 1.18\n"},
        "source": "code.go",
        "build": ["go", "build", "-o", "program"],
        "built": ["program"],
        "run": ["{}/program"],
        "folders": {"GOCACHE": "/cache", "GOPATH": "/path"},
        "env": {"CGO_ENABLED": "0", "GOFLAGS": "", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOWORK": "off"},
    }
    ways = (
        "Go 1.18 or later, one file of the package main, with imports of the standard library only and without main, "
        "init and a package clause. Definitions begin in the first column, and directly above the function stands the "
        "given comment with its signature. Functions that it depends on are in scope. It returns its result and an "
        "error, or only an error if the result is None: callers get the error, and never a panic. A test expects any "
        "error that is returned as Error, or one of a type of the code by the name of the type. str is string, int is "
        "int, float is float64, a list is a slice, a dict a map with keys of text, and None is nil. There is no "
        "network, and nobody to answer a prompt."
    )

    def split(self, source: str) -> tuple[list[str], str]:
        """See `CompiledLanguage.split`."""
        imports = []
        for block, line in _BLOCK.findall(source):
            lines = [re.sub(r"\s*//.*", "", each).strip() for each in re.split(r"[;\n]", block or line)]
            imports += [f"import {each}" for each in lines if each]
        return imports, re.sub(r"(?m)^package \w+$", "", _BLOCK.sub("", source)).strip() + "\n"

    def imported(self, line: str) -> str:
        """See `CompiledLanguage.imported`."""
        return line.rpartition(" ")[2].strip('"`')

    def imports(self, source: str) -> dict[str, str]:
        """See `Language.imports`."""
        lines = [line.removeprefix("import ") for line in self.split(source)[0]]
        found = [(*line.rpartition(" ")[::2], self.imported(line)) for line in lines]
        return {alias.strip() or module.rpartition("/")[2]: module for alias, _, module in found}

    def names_defined(self, source: str) -> list[str]:
        """See `Language.names_defined`; methods belong to their types."""
        body = self.split(source)[1]
        grouped = [re.findall(r"^(?:\t| {2,4})(\w+)", block, re.MULTILINE) for block in _GROUP.findall(body)]
        return [*_NAME.findall(body), *(name for names in grouped for name in names)]

    def header(self, name: str, inputs: Sequence[tuple[str, str]], result: str) -> str:
        """See `CompiledLanguage.header`."""
        given = ", ".join(f"{each} {self.type_of(kind)}" for each, kind in inputs)
        return f"func {name}({given}) {self._results(result)} {{"

    def link(self, name: str, inputs: Sequence[tuple[str, str]], result: str) -> tuple[str, str]:
        """See `CompiledLanguage.link`."""
        kinds, results = [self.type_of(kind) for _, kind in inputs], self._results(result)
        given = ", ".join(f"a{place} {kind}" for place, kind in enumerate(kinds))
        names = ", ".join(f"a{place}" for place in range(len(kinds)))
        same = f"var same func({', '.join(kinds)}) {results} = {name}; return same({names})"  # Of exactly these types.
        return "", f'"{name}": func({given}) {results} {{ {same} }},'

    def _results(self, result: str) -> str:
        return "error" if result == "None" else f"({self.type_of(result)}, error)"
