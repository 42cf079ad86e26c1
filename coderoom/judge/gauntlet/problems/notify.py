"""notify"""

def notify(users, send):
    for each in users:
        if each["active"]:
            send(each["name"])


def check(candidate):
    from unittest.mock import Mock

    send = Mock()
    candidate([{"name": "a", "active": True}, {"name": "b", "active": False}], send)
    send.assert_called_once_with("a")
    send = Mock()
    candidate([], send)
    send.assert_not_called()
