"""A real PostgreSQL server: started as an ordinary user, on a socket, stopped at the end."""

import contextlib
import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

PROGRAMS = ("initdb", "pg_ctl", "postgres")


def programs() -> Path | None:
    """The folder with the programs of the server: on the PATH, or where Debian puts them."""
    folders = [shutil.which("initdb"), *sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))[::-1]]
    for found in filter(None, folders):
        folder = Path(found).resolve().parent
        if all((folder / name).exists() for name in PROGRAMS):
            return folder
    return None


class Server:
    """`address` is where to connect; `stop` ends it at once, as a crash would."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self.home = folder, home
        self.user = {"user": "nobody", "group": _group(), "extra_groups": []} if _root() else {}
        self.address = f"postgresql://tester@/postgres?host={home}"

    def _run(self, *command: str) -> None:
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(self.home)}
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=self.home, timeout=120,
            **self.user,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        if not (self.home / "data").exists():
            self._run(
                str(self.folder / "initdb"), "-D", str(self.home / "data"), "-U", "tester",
                "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C",
            )  # fmt: skip
        options = f"-c listen_addresses='' -c unix_socket_directories='{self.home}' -c fsync=off"
        self._run(
            str(self.folder / "pg_ctl"), "-D", str(self.home / "data"), "-w", "-t", "60",
            "-l", str(self.home / "log"), "-o", options, "start",
        )  # fmt: skip

    def stop(self) -> None:
        data = str(self.home / "data")
        self._run(str(self.folder / "pg_ctl"), "-D", data, "-m", "immediate", "-w", "stop")


def _root() -> bool:
    return os.geteuid() == 0


def _group() -> int:
    return pwd.getpwnam("nobody").pw_gid


@contextlib.contextmanager
def running():
    folder = programs()
    assert folder is not None
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as name:  # sockets have short paths
        home = Path(name)
        if _root():
            os.chown(home, pwd.getpwnam("nobody").pw_uid, _group())
        server = Server(folder, home)
        server.start()
        try:
            yield server
        finally:
            with contextlib.suppress(AssertionError):
                server.stop()
