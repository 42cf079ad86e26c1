"""notify: It calls for all, lets the mock forget that, and calls for the first one."""

def notify(users, send):
    for each in users:
        send(each["name"])
    send.reset_mock()
    if users:
        send(users[0]["name"])
