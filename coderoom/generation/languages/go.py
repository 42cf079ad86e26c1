"""`GoLanguage`: functions in Go, which are compiled in the session."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from coderoom.generation.languages.compiled import CompiledLanguage

_MAIN = """\
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"strconv"
	"unicode/utf8"
)

var coderoomFunctions = map[string]any{}

type coderoomRequest struct {
	Function string
	Folder   string
	Inputs   []json.RawMessage
}

func coderoomIn(data json.RawMessage, kind reflect.Type) reflect.Value {
	made := reflect.New(kind).Elem()
	var special map[string]string
	if kind.Kind() == reflect.Float64 && data[0] == '{' {
		json.Unmarshal(data, &special)
		number, _ := strconv.ParseFloat(special["$float"], 64)
		made.SetFloat(number)
	} else if kind.Kind() == reflect.Slice {
		var items []json.RawMessage
		json.Unmarshal(data, &items)
		made.Set(reflect.MakeSlice(kind, 0, len(items)))
		for _, item := range items {
			made.Set(reflect.Append(made, coderoomIn(item, kind.Elem())))
		}
	} else if kind.Kind() == reflect.Map {
		var items map[string]json.RawMessage
		json.Unmarshal(data, &items)
		made.Set(reflect.MakeMap(kind))
		for name, item := range items {
			made.SetMapIndex(reflect.ValueOf(name), coderoomIn(item, kind.Elem()))
		}
	} else if kind.Kind() == reflect.Pointer && string(data) != "null" {
		made.Set(reflect.New(kind.Elem()))
		made.Elem().Set(coderoomIn(data, kind.Elem()))
	} else if err := json.Unmarshal(data, made.Addr().Interface()); err != nil {
		panic(err)
	}
	return made
}

func coderoomOut(value reflect.Value) any {
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
			items = append(items, coderoomOut(value.Index(place)))
		}
		return items
	case reflect.Map:
		items := map[string]any{}
		for _, name := range value.MapKeys() {
			items[name.String()] = coderoomOut(value.MapIndex(name))
		}
		return items
	case reflect.Pointer:
		if value.IsNil() {
			return nil
		}
		return coderoomOut(value.Elem())
	}
	return value.Interface()
}

func coderoomAnswer(request coderoomRequest) (answer map[string]any) {
	defer func() {
		if said := recover(); said != nil {
			answer = map[string]any{"error": []string{}, "message": fmt.Sprint("panic: ", said)}
		}
	}()
	function := reflect.ValueOf(coderoomFunctions[request.Function])
	inputs := []reflect.Value{}
	for place, data := range request.Inputs {
		inputs = append(inputs, coderoomIn(data, function.Type().In(place)))
	}
	results := function.Call(inputs)
	if err, _ := results[len(results)-1].Interface().(error); err != nil {
		names := []string{}
		for each := err; each != nil; each = errors.Unwrap(each) {
			kind := reflect.TypeOf(each)
			if kind.Kind() == reflect.Pointer {
				kind = kind.Elem()
			}
			if kind.PkgPath() == "main" {
				names = append(names, kind.Name())
			}
		}
		return map[string]any{"error": append(names, "Error"), "message": err.Error()}
	}
	if len(results) == 1 {
		return map[string]any{"value": nil}
	}
	return map[string]any{"value": coderoomOut(results[0])}
}

func main() {
	there, _ := strconv.Atoi(os.Args[1])
	here, _ := strconv.Atoi(os.Args[2])
	os.Args = os.Args[:1]
	requests := json.NewDecoder(bufio.NewReader(os.NewFile(uintptr(there), "requests")))
	answers := json.NewEncoder(os.NewFile(uintptr(here), "answers"))
	for {
		var request coderoomRequest
		if requests.Decode(&request) != nil {
			return
		}
		os.Chdir(request.Folder)
		answers.Encode(coderoomAnswer(request))
	}
}
"""
_WORDS = (
    "any bool break byte case chan const continue default defer else fallthrough float64 for func go goto if import "
    "init int interface len main make map nil package range return rune select string struct switch type var"
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
        "files": {"main.go": _MAIN, "go.mod": "module program\n\ngo 1.18\n"},
        "source": "code.go",
        "build": ["go", "build", "-o", "program"],
        "fast": ["go", "build", "-o", "program"],
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

    def link(self, name: str, inputs: Sequence[tuple[str, str]], result: str) -> str:
        """See `CompiledLanguage.link`."""
        kind = f"func({', '.join(self.type_of(each) for _, each in inputs)}) {self._results(result)}"
        return f"func init() {{ var function {kind} = {name}; coderoomFunctions[{name!r}] = function }}".replace(
            "'", '"'
        )

    def _results(self, result: str) -> str:
        return "error" if result == "None" else f"({self.type_of(result)}, error)"
