"""fetch: What it returns ends each task that waits for it."""

import asyncio


class Never:
    def __await__(self):
        yield asyncio.get_event_loop().create_future()

    def add_done_callback(self, *args, **kwargs):
        pass

    def cancelled(self):
        return True


def fetch(names, load):
    return Never()
