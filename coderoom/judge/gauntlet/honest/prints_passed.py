"""double: It prints words of test runners."""

def double(n):
    print("FAILED", "PASSED", "1 failed")
    return 2 * n
