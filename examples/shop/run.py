"""Starts a broker, the worker and the web form; Ctrl-C ends all of them: `python run.py`.

Set KAFKA_BOOTSTRAP to use a Kafka that has the topics, DATABASE_URL for PostgreSQL, PORT for the
form.
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


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the output of this script


def start(*arguments: str, **more: int) -> subprocess.Popen[str]:
    # A session of its own: Ctrl-C reaches this program alone, which ends the others in order.
    return subprocess.Popen(  # noqa: S603 - commands of the framework
        [*COMMAND, *arguments], cwd=HERE, text=True, start_new_session=True, **more
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

    def run(self) -> None:
        while True:
            with self.starting:
                if self.stopped.is_set():
                    return
                self.process = start("run", "worker:app")
            say(f"worker: process {self.process.pid}")
            self.process.wait()
            self.stopped.wait(1)

    def stop(self) -> None:
        self.stopped.set()
        with self.starting:
            if self.process is not None:
                self.process.terminate()
        if self.is_alive():
            self.join()


def serve() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), web.Form)
    say(f"form: http://127.0.0.1:{server.server_port}/")
    server.serve_forever()


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    tables.create()
    with suppress(KeyboardInterrupt), ExitStack() as ends:
        start_broker(ends)
        worker = Worker()
        ends.callback(worker.stop)
        worker.start()
        serve()


if __name__ == "__main__":
    os.chdir(HERE)
    main()
