"""Starts a broker, the worker and the web form; Ctrl-C ends all of them: `python run.py`.

Set KAFKA_BOOTSTRAP to use a Kafka that has the topics, DATABASE_URL for PostgreSQL, PORT for the
form. Everything runs in the folder in which it was called, so that a relative path of a database
means the same file to all.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from http.server import ThreadingHTTPServer
from pathlib import Path

import tables
import web

HERE = Path(__file__).parent
COMMAND = (sys.executable, "-m", "window_consumer")
USAGE_ERROR = 2
"""The worker's exit code when a restart would not help."""


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the output of this script


def start(*arguments: str, **more: int) -> subprocess.Popen[str]:
    # A separate session: Ctrl-C reaches only this program, which ends the others in order.
    return subprocess.Popen(  # noqa: S603 - commands of the framework
        [*COMMAND, *arguments], text=True, start_new_session=True, **more
    )


def start_broker(ends: ExitStack) -> None:
    if "KAFKA_BOOTSTRAP" in os.environ:
        return
    broker = start("broker", "--topic", "orders", "--topic", "order-events", stdout=subprocess.PIPE)
    ends.callback(broker.wait)
    ends.callback(broker.terminate)
    assert broker.stdout is not None
    os.environ["KAFKA_BOOTSTRAP"] = address = broker.stdout.readline().strip()
    say(f"broker: {address}")


class Worker(threading.Thread):
    """Starts the worker again when it is killed, as Kubernetes would."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stopped = threading.Event()
        self.starting = threading.Lock()
        self.process: subprocess.Popen[str] | None = None
        self.refused = False

    def run(self) -> None:
        while True:
            with self.starting:
                if self.stopped.is_set():
                    return
                self.process = start("run", "worker:app", "-c", str(HERE / "workers.yaml"))
            say(f"worker: process {self.process.pid}")
            if self.process.wait() == USAGE_ERROR:
                self.refused = True
                os.kill(os.getpid(), signal.SIGTERM)
                return
            self.stopped.wait(1)

    def stop(self) -> None:
        self.stopped.set()
        with self.starting:
            if self.process is not None:
                self.process.terminate()
        if self.is_alive():
            self.join()


def make_form() -> ThreadingHTTPServer:
    port = int(os.environ.get("PORT", "8080"))
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), web.Form)
    except OSError as error:
        sys.exit(f"port {port}: {error.strerror}; set PORT to another one")


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    form = make_form()
    tables.create()
    worker = Worker()
    with suppress(KeyboardInterrupt), ExitStack() as ends:
        start_broker(ends)
        ends.callback(worker.stop)
        worker.start()
        say(f"form: http://127.0.0.1:{form.server_port}/")
        form.serve_forever()
    return USAGE_ERROR if worker.refused else 0


if __name__ == "__main__":
    # The worker's process needs the modules beside this one, and the same database.
    also = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{HERE}{os.pathsep}{also}" if also else str(HERE)
    os.environ["DATABASE_URL"] = tables.URL
    sys.exit(main())
