"""smolagents: Its executor, which interprets Python itself, with all imports allowed."""

from smolagents.local_python_executor import LocalPythonExecutor


def passes(code, test, name, timeout):
    executor = LocalPythonExecutor(["*"], timeout_seconds=int(timeout))
    executor.send_tools({})
    try:
        executor(f"{code}\n{test}\ncheck({name})\n")
    except Exception:
        return False
    return True
