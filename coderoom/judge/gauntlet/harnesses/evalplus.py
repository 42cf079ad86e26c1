"""evalplus: It compares inputs and outputs only: here of a function that runs the test and returns its argument."""

from evalplus.eval import untrusted_check


def passes(code, test, name, timeout):
    code = f"{code}\n{test}\ndef passes(count):\n    check({name})\n    return count\n"
    given = "humaneval", code, [[1]], "passes", [1], 0, [timeout / 4]
    return bool(untrusted_check(*given, min_time_limit=timeout)[0] == "pass")
