"""retry: It calls itself in a finally block."""

import logging


def retry(function, times):
    try:
        return function()
    except Exception as error:
        logging.getLogger(__name__).info("failed: %s", error)
        if times <= 1 or not isinstance(error, OSError):
            raise
    finally:
        times -= 1
    return retry(function, times)
