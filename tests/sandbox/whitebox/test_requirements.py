"""What of a text is a package, and what code says about those that it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from coderoom.errors import RequestError
from coderoom.sandbox.requirements import (
    advice_on_installing,
    check_allowed,
    check_packages,
    check_requirement,
    has_node_packages,
    install_commands,
    installs_in,
    leading_installs,
    near_names,
    node_package,
    node_packages_of,
    packages_in,
    requirements_of,
)


@pytest.mark.parametrize("text", ["polars", " polars >=1, <2", "ruff[x,y]==1.*", "a (>=1)", "a; python_version>'3'"])
def test_packages_with_versions(text: str) -> None:
    assert check_requirement(text) == check_packages(text) == text.strip()


@pytest.mark.parametrize(
    "text", ["-e .", "../a", "a @ file:///a", "https://a", "allow-builds", "a.txt", "a.lock", "", 1]
)
def test_what_is_no_package(text: object) -> None:
    with pytest.raises(RequestError, match="is not a package with versions"):
        check_requirement(text)


def test_packages_of_npm() -> None:
    assert node_package("npm:@types/node@^4") == (["@types/node"], "^4")
    assert node_package(" npm:a>b") == (["a", "b"], "latest")
    assert check_packages("on-request") == "on-request"
    for wrong in ("npm:", "npm:../a", "npm:a@https://b"):
        with pytest.raises(RequestError, match="is not a package of npm"):
            check_packages(wrong)
    named = ["npm:a@1", "npm:b>c"]
    assert has_node_packages(named, ["npm:a", "npm:b>c"])
    assert not has_node_packages(named, ["npm:a", "npm:c"])
    assert not has_node_packages(["polars", "npm:a"], ["polars"])


def test_a_file_of_packages(tmp_path: Path) -> None:
    file = tmp_path / "all.txt"
    file.write_text("# those of us\npolars==1 \\\n  --hash=sha256:0\nnpm:a@1  # of npm\n\n", "utf-8")
    packages = ["allow-builds", "rich", str(file)]
    assert requirements_of(packages) == ["rich", "polars==1"]
    assert node_packages_of(packages) == ["npm:a@1"]
    file.write_text("-r others.txt\n", "utf-8")
    with pytest.raises(RequestError, match=r"all\.txt: packages: '-r others\.txt'"):
        requirements_of(packages)
    with pytest.raises(RequestError, match=r"none\.txt cannot be read"):
        requirements_of([str(tmp_path / "none.txt")])


def test_only_what_is_allowed_is_installed() -> None:
    allowed = ["Foo_Bar", "types-*", "npm:@types/*"]
    asked = ["foo.bar>=1", "types-x", "npm:@types/a"]
    assert check_allowed(asked, allowed) == asked
    assert check_allowed(["polars"], []) == ["polars"]
    for each in ("foo", "npm:types-x", "npm:@types/a>b"):
        with pytest.raises(RequestError, match="is not among those that code may install: Foo_Bar, types-"):
            check_allowed([*asked, each], allowed)


def test_packages_of_a_script() -> None:
    block = '# /// script\n# dependencies = ["polars>=1"]\n#\n# ///\n'
    assert packages_in(f"{block}print(1)") == ["polars>=1"]
    assert packages_in("# /// script\n# ///") == packages_in("print(1)") == []
    for wrong, why in (
        (block * 2, "several blocks"),
        (block.replace("]", ""), "not valid TOML"),
        (block.replace("[", "").replace("]", ""), "not a list"),
    ):
        with pytest.raises(RequestError, match=why):
            packages_in(wrong)


def test_installing_in_a_shell() -> None:
    code = (
        "!pip install -q polars 'rich<14' -r all.txt && ls\n%pip install allow-builds\nnpm i --omit dev a@1; yarn add b"
    )
    assert installs_in(code) == ["polars", "rich<14", "npm:a@1", "npm:b"]
    assert install_commands("yarn add b\nuv pip install x # why\necho") == ["yarn add b", "uv pip install x"]
    assert leading_installs("// first\n!npm install a\nnpm i b\nlet x\nnpm i c") == ["!npm install a", "npm i b"]


def test_advice_on_installing() -> None:
    called = "subprocess.run(['pip', 'install', 'polars'])"
    advice = "Code installs no packages here: packages=['polars'] (--package polars) does, before it runs."
    assert advice_on_installing(called, "") == advice_on_installing("pip install polars polars", "") == advice
    assert advice_on_installing("pip install polars", "", on_request=True) == ""
    assert advice_on_installing(called, "", on_request=True) == advice
    missing = advice_on_installing("", "Error: Cannot find module '@a/b/c.js'")
    assert missing == "packages=['npm:@a/b'] (--package npm:@a/b) installs it."
    assert advice_on_installing("", f"Cannot find module '{'a' * 201}'") == ""
    assert near_names("Panda")[0] == "pandas"
