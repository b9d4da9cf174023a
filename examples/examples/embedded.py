"""Loads a library that contains Volt into Python, and checks what docs/operations.md states about it.

    cargo build -p volt-examples --example embedded
    python3 examples/examples/embedded.py target/debug/examples/libembedded.so

Each check runs in its own interpreter and has a time limit. Prints one line per check. Exits with 1
if a check fails.
"""

import _ctypes
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

# How long a check may take on a busy machine, in seconds.
LIMIT = 60
# The result of a call that panicked.
PANICKED = -1
# A check that ends in order, and so leaves nothing.
TIDY = "check_several_runtimes_run_in_one_library"


class Library:
    """The functions of `embedded.rs`."""

    def __init__(self, path):
        self.loaded = ctypes.CDLL(path)
        types = {
            "start": (ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_int]),
            "sum": (ctypes.c_int64, [ctypes.c_void_p, ctypes.c_int64]),
            "tick_forever": (ctypes.c_int64, [ctypes.c_void_p]),
            "block": (ctypes.c_int64, [ctypes.c_void_p, ctypes.c_int64]),
            "stop": (ctypes.c_int64, [ctypes.c_void_p]),
        }
        for name, (result, arguments) in types.items():
            function = getattr(self.loaded, f"embedded_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)


def is_mapped(path):
    return os.path.realpath(path) in Path("/proc/self/maps").read_text()


def sockets():
    return list(Path(os.environ["VOLT_SOCKET_DIR"]).glob("*.sock"))


def sum_of_99(path):
    """Builds a runtime and runs tasks, in a process of `multiprocessing`."""
    library = Library(path)
    runtime = library.start(b"worker", 2)
    total = library.sum(runtime, 100)
    library.stop(runtime)
    return total


def check_several_runtimes_run_in_one_library(path):
    library = Library(path)
    first, second = library.start(b"first", 2), library.start(b"second", 1)
    assert library.sum(first, 1000) == library.sum(second, 1000) == 499500
    assert len(sockets()) == 1, "one control socket for both"
    library.stop(first)
    assert library.sum(second, 10) == 45
    library.stop(second)


def check_a_stuck_poll_is_reported_with_its_line(path):
    library = Library(path)
    runtime = library.start(b"stuck", 2)
    while library.block(runtime, 50) == 0:
        pass
    library.stop(runtime)


def check_handlers_of_python_receive_their_signals(path):
    received = []
    for number in (signal.SIGTERM, signal.SIGURG):
        signal.signal(number, lambda number, _frame: received.append(number))
    library = Library(path)
    runtime = library.start(b"signals", 2)
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGURG)
    while len(received) < 2:
        time.sleep(0.001)
    # The stack of a stuck poll is captured with SIGURG, which the handler of Python does not get.
    while library.block(runtime, 50) == 0:
        pass
    assert sorted(received) == sorted([signal.SIGTERM, signal.SIGURG]), received
    library.stop(runtime)


def check_a_forked_child_builds_its_own_runtime(path):
    library = Library(path)
    runtime = library.start(b"parent", 2)
    assert library.sum(runtime, 100) == 4950
    child = os.fork()
    if child == 0:
        is_refused = library.sum(runtime, 100) == PANICKED
        own = library.start(b"child", 2)
        os._exit(0 if is_refused and library.sum(own, 100) == 4950 else 1)
    assert os.waitpid(child, 0)[1] == 0, "the child"
    assert library.sum(runtime, 100) == 4950, "the parent's runtime still works"
    library.stop(runtime)


def check_processes_of_multiprocessing_work_also_when_forked(path):
    library = Library(path)
    runtime = library.start(b"parent", 2)
    assert library.sum(runtime, 100) == 4950
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(sum_of_99, [path] * 4) == [4950] * 4, method
    library.stop(runtime)


def check_the_interpreter_exits_while_tasks_run(path):
    library = Library(path)
    runtime = library.start(b"endless", 2)
    for _ in range(100):
        library.tick_forever(runtime)
    assert len(sockets()) == 1
    # The runtime is not stopped. `main` checks the exit code and that the socket is removed.


def check_the_library_stays_loaded_after_dlclose(path):
    def use():
        library = Library(path)
        runtime = library.start(b"unloaded", 2)
        assert library.sum(runtime, 100) == 4950
        library.stop(runtime)
        handle.append(library.loaded._handle)

    handle = []
    # On a thread that ends, so that no destructor of a thread-local keeps the library loaded.
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    # The threads of the program linger for a second after its last runtime.
    while len(os.listdir("/proc/self/task")) > 1:
        time.sleep(0.01)
    _ctypes.dlclose(handle[0])
    assert is_mapped(path), "the handler of SIGURG is still installed"
    os.kill(os.getpid(), signal.SIGURG)
    assert sum_of_99(path) == 4950, "it can be loaded again"


CHECKS = {name: function for name, function in list(globals().items()) if name.startswith("check_")}


def run(name, path):
    """Runs a check in its own interpreter, with its own folder of sockets. Returns an error or ""."""
    with tempfile.TemporaryDirectory(prefix="volt-", dir="/tmp") as folder:
        environment = {**os.environ, "VOLT_SOCKET_DIR": folder + "/sockets"}
        command = [sys.executable, __file__, path, name]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired as hangs:
            return f"hangs: {hangs.stderr}"
        if done.returncode != 0:
            return f"exit code {done.returncode}: {done.stderr}"
        left = list(Path(folder).glob("sockets/*.sock"))
        # A process that ends by `_exit`, as forked children do in Python, leaves its socket. The
        # next program removes it.
        if left and "fork" in name:
            subprocess.run([sys.executable, __file__, path, TIDY], env=environment, timeout=LIMIT, check=True)
            left = list(Path(folder).glob("sockets/*.sock"))
        return f"sockets are left: {left}" if left else ""


def main():
    path = os.path.abspath(sys.argv[1])
    if len(sys.argv) > 2:
        CHECKS[sys.argv[2]](path)
        return
    failed = 0
    for name in CHECKS:
        error = run(name, path)
        failed += bool(error)
        claim = name.removeprefix("check_").replace("_", " ")
        print(f"FAILED: {claim}: {error}" if error else f"ok: {claim}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
