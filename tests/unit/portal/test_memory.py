"""Test that a web process releases the memory of log-ins, and limits all other memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

# Passwords are hashed one after the other on threads that all stay alive, as in requests.
PROGRAM = """
import hashlib, os, sys, threading
from portal.site.memory import give_back_what_is_freed
if sys.argv[1] == "set":
    assert give_back_what_is_freed()

def resident():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20

def hashed():
    hashlib.scrypt(b"password", salt=b"salt", n=2**14, r=8, p=1, maxmem=2**26)

def request():
    for _ in range(2):
        with turn:
            hashed()
    done.release()
    leave.wait()

turn, leave, done = threading.Lock(), threading.Event(), threading.Semaphore(0)
hashed()
before = resident()
threads = [threading.Thread(target=request) for _ in range(12)]
for thread in threads:
    thread.start()
for _ in threads:
    done.acquire()
print(resident() - before)
leave.set()
"""
HASH_MB = 16
WEB = "import portal.site.asgi"
WORKER = """
from celery import signals
from portal.site.celery import app
app.loader.init_worker()
signals.worker_init.send(sender="worker")
"""

glibc_only = pytest.mark.skipif(
    not Path("/proc/self/statm").exists() or not os.confstr("CS_GNU_LIBC_VERSION"),
    reason="it is glibc that keeps large blocks",
)


def grown_mb(way: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, way], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@glibc_only
def test_password_hashing_on_many_threads_releases_memory() -> None:
    assert grown_mb("set") < 2 * HASH_MB


@glibc_only
def test_memory_stays_allocated_without_setting() -> None:
    """This shows that the previous test measures the effect of the setting."""
    assert grown_mb("unset") > 4 * HASH_MB


@pytest.mark.parametrize(("program", "has_pages"), [(WEB, True), (WORKER, False)])
def test_imported_objects_are_frozen_for_garbage_collection(program: str, has_pages: bool) -> None:
    told = "import gc, sys; print(gc.get_freeze_count(), 'portal.site.urls' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{told}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    frozen, pages = done.stdout.split()
    assert int(frozen) > 100_000
    assert pages == str(has_pages)
