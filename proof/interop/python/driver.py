"""Runs the Python lock client with the line protocol that proof/interop/README.md describes."""

import json
import os
import sys

from client import LockClient, Refused
import work


def carry_out(client, request):
    actions = {
        "acquire": client.acquire,
        "renew": client.renew,
        "release": client.release,
        "read": client.read,
        "pairs": lambda request: work.pairs(client, request),
        "contend": lambda request: work.contend(client, request),
    }
    return actions[request["do"]](request)


def answer(client, request):
    try:
        return {"ok": True, **carry_out(client, request)}
    except Refused as refused:
        return {"ok": False, "why": refused.why, "error": str(refused)}
    except Exception as error:  # Whatever the library throws is an answer.
        return {"ok": False, "why": "failed", "error": f"{type(error).__name__}: {error}"}


def main():
    # The first request opens the client.
    client = LockClient(json.loads(sys.stdin.readline()))
    print(json.dumps({"ok": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(client, json.loads(line))), flush=True)
    # The parent process has ended. The client's own threads must not keep this process alive.
    os._exit(0)


main()
