from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import ValidationError

from coderoom.approval import (
    AlwaysApprove,
    Approval,
    ApprovalRequest,
    ApprovalResponse,
    ChainApproval,
    NeverApprove,
    Rule,
    RuleApproval,
)
from coderoom.blocks import fence

PRINTS = Rule(pattern=r"\A\s*print\(\d+\)\s*\Z", action="allow", reason="just prints")
DELETES = Rule(pattern=r"\brm\b|rmtree", action="deny", reason="no deleting")
NETWORK = Rule(pattern=r"\bcurl\b|requests", action="ask")
RULES = [DELETES, NETWORK, PRINTS]


def request(*blocks: tuple[str, str]) -> ApprovalRequest:
    return ApprovalRequest(code="\n\n".join(fence(code, language) for language, code in blocks), context=[])


async def verdict(
    code: str, rules: list[Rule] = RULES, default: Literal["allow", "deny", "ask"] = "ask"
) -> Literal["allow", "deny", "ask"]:
    answer = await RuleApproval(rules, default=default).decide(ApprovalRequest(code=code, context=[]))
    if answer is None:
        return "ask"
    return "allow" if answer.approved else "deny"


async def test_a_rule_decides_with_its_reason() -> None:
    approval = RuleApproval(RULES)
    assert await approval.decide(request(("python", "print(1)"))) == ApprovalResponse(
        approved=True, reason="just prints"
    )
    assert await approval.decide(request(("sh", "rm -r x"))) == ApprovalResponse(approved=False, reason="no deleting")
    assert await approval.decide(request(("sh", "curl x"))) is None


async def test_a_rule_without_a_reason_gives_its_pattern() -> None:
    answer = await RuleApproval([Rule(pattern="e.al", action="deny")]).decide(request(("python", "eval(x)")))
    assert answer is not None
    assert "'e.al'" in answer.reason


async def test_the_first_match_wins() -> None:
    allow, deny = Rule(pattern="a", action="allow"), Rule(pattern="ab", action="deny")
    assert await verdict("ab", [allow, deny]) == "allow"
    assert await verdict("ab", [deny, allow]) == "deny"


@pytest.mark.parametrize("default", ["allow", "deny", "ask"])
async def test_the_default_is_for_what_no_rule_matches(default: Literal["allow", "deny", "ask"]) -> None:
    assert await verdict(fence("x = 1", "python"), RULES, default) == default
    assert await verdict("x = 1", [], default) == default


async def test_an_opinion_less_rule_is_a_no_alone_and_leaves_it_to_the_next_in_a_chain() -> None:
    unclear = request(("python", "x = 1"))
    rules = RuleApproval(RULES)
    assert not (await rules(unclear)).approved
    assert (await ChainApproval([rules, AlwaysApprove()])(unclear)).approved
    assert (await ChainApproval([rules, NeverApprove("person")])(unclear)).reason == "person"


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ([("python", "print(1)"), ("python", "print(2)")], "allow"),
        ([("python", "print(1)"), ("python", "x = 1")], "ask"),
        ([("python", "print(1)"), ("sh", "curl x")], "ask"),
        ([("python", "print(1)"), ("sh", "rm x")], "deny"),
        ([("sh", "curl x"), ("sh", "rm x"), ("python", "print(1)")], "deny"),
    ],
)
async def test_the_strictest_action_over_the_blocks_wins(blocks: list[tuple[str, str]], expected: str) -> None:
    assert await verdict(request(*blocks).code) == expected
    assert await verdict(request(*reversed(blocks)).code) == expected


async def test_a_pattern_does_not_reach_over_the_blocks_border() -> None:
    reaching = Rule(pattern=r"first(.|\n)*second", action="allow")
    assert await verdict(request(("python", "first"), ("python", "second")).code, [reaching]) == "ask"


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint(1)\n```\nimport os; os.abort()\n```python\nprint(2)\n```",
        "import os; os.abort()\n\n```python\nprint(1)\n```",
        "```python\nprint(1)\n```\n\nimport os; os.abort()",
        "```python\r\nprint(1)\r\n```\r\nimport os; os.abort()",
        "```python\nprint(1)\n```\n    import os; os.abort()\n",
        "```python\nprint(1)\n```\n<!-- import os -->\n",
        "<execute>print(1)</execute> os.abort()",
        "> ```python\n> print(1)\n> ```\n> os.abort()",
        "print(1); `print(1)`",
        "```python\nprint(1)\n",
        "````python\nprint(1)\n```\nimport os; os.abort()\n````",
    ],
)
async def test_what_stands_outside_of_the_blocks_is_not_allowed_with_them(text: str) -> None:
    expected = "allow" if text == "```python\nprint(1)\n" else "ask"
    assert await verdict(text) == expected
    assert await verdict(text + "\nrm x") == "deny"


async def test_code_with_fences_in_it_is_judged_whole() -> None:
    code = 'text = """\n```python\nprint(1)\n```\n"""\nrm'
    assert await verdict(request(("python", code)).code) == "deny"
    assert await verdict(request(("python", code.replace("rm", "go()"))).code) == "ask"


@pytest.mark.parametrize("code", ["print(1)", "  print(1)\n", "\n\nprint(1)", "print(1)\n\n"])
async def test_spaces_around_the_code_do_not_matter_to_a_rule_that_allows_them(code: str) -> None:
    assert await verdict(code) == "allow"
    assert await verdict(request(("python", code), ("py", code)).code) == "allow"


async def test_empty_requests_and_blocks_get_the_default() -> None:
    assert await verdict("") == "ask"
    assert await verdict("```python\n```", RULES, "allow") == "allow"
    assert await verdict(request(("python", ""), ("python", "print(1)")).code) == "ask"


async def test_a_rule_for_a_language_is_only_for_that() -> None:
    for name in ("python", "py", "Python3"):
        rules = [Rule(pattern="x", action="deny", language=name)]
        assert await verdict(fence("x", "python"), rules, "allow") == "deny"
        assert await verdict(fence("x", "ipython"), rules, "allow") == "deny"
        assert await verdict(fence("x", "sh"), rules, "allow") == "allow"


async def test_code_in_an_unknown_language_may_be_in_the_denied_one_and_is_not_in_the_allowed_one() -> None:
    for text in ("x", fence("x")):
        for action in ("deny", "ask"):
            rules = [Rule(pattern="x", action=action, language="python")]
            assert await verdict(text, rules, "allow") == action
        assert await verdict(text, [Rule(pattern="x", action="allow", language="python")]) == "ask"


async def test_patterns_see_every_line() -> None:
    assert await verdict("a\nimport os\nb", [Rule(pattern=r"^import os$", action="deny")]) == "deny"


@pytest.mark.parametrize("pattern", ["(", "[a-", "*", "(?P<x>a)(?P<x>b)", ""])
def test_a_pattern_that_is_none_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Rule(pattern=pattern, action="allow")
    assert ("is not a regular expression" in str(caught.value)) is bool(pattern)
    assert repr(pattern) in str(caught.value)


def test_a_wrong_pattern_in_a_config_is_told_with_its_place() -> None:
    config = {"rules": [{"pattern": "a", "action": "ask"}, {"pattern": "(", "action": "deny"}]}
    with pytest.raises(ValidationError, match=r"rules\.1\.pattern"):
        Approval.load_component({"provider": "coderoom.approval.RuleApproval", "config": config})


def test_a_rule_is_strict_and_frozen() -> None:
    wrong: Any = {"pattern": "x", "action": "permit"}
    with pytest.raises(ValidationError, match="action"):
        Rule(**wrong)
    unknown: Any = {"pattern": "x", "action": "deny", "langauge": "sh"}
    with pytest.raises(ValidationError, match="langauge"):
        Rule(**unknown)
    with pytest.raises(ValidationError, match="frozen"):
        PRINTS.action = "deny"
    assert len({PRINTS, PRINTS.model_copy()}) == 1


def test_a_wrong_default_is_refused() -> None:
    wrong: Any = "permit"
    with pytest.raises(ValidationError, match="default"):
        RuleApproval([], default=wrong)
