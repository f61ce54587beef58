"""Loops for measurements. They run inside the driver, so that the measured time does not include the line protocol."""

import threading
import time


def micros(began):
    return round((time.perf_counter() - began) * 1e6)


def pairs(client, request):
    """Acquires and releases free locks, one pair after another."""
    acquire, release = [], []
    keys = request["keys"]
    for pair in range(request["count"]):
        request["key"] = keys[pair % len(keys)]
        began = time.perf_counter()
        client.acquire(request)
        acquire.append(micros(began))
        began = time.perf_counter()
        client.release(request)
        release.append(micros(began))
    return {"acquireMicros": acquire, "releaseMicros": release}


class Holders:
    """Counts the clients that hold the lock, and how often there was more than one."""

    def __init__(self):
        self.lock = threading.Lock()
        self.inside = 0
        self.overlaps = 0
        self.failures = []

    def enter(self):
        with self.lock:
            self.inside += 1
            self.overlaps += self.inside != 1

    def leave(self):
        with self.lock:
            self.inside -= 1


def contend(client, request):
    """Lets each contender acquire and release the same key once per round."""
    contenders = [client.another(number) for number in range(request["contenders"])]
    holders = Holders()
    threads = [threading.Thread(target=take_turns, args=(one, request, holders), daemon=True) for one in contenders]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = micros(began)
    if holders.failures:
        raise holders.failures[0]
    return {"micros": took, "overlaps": holders.overlaps}


def take_turns(client, request, holders):
    try:
        for _ in range(request["rounds"]):
            client.acquire(request)
            holders.enter()
            time.sleep(request.get("workMillis", 0) / 1000)
            holders.leave()
            client.release(request)
    except Exception as error:  # Raised again in contend().
        holders.failures.append(error)
