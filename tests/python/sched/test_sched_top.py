"""`pawl top` on a terminal: no more lines than it has room for."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import program
from cluster import PROGRAM, Cluster, cluster


def look(ours: Cluster, rows: int, columns: int) -> list[str]:
    """Returns the lines of one look, in a terminal of that size."""
    ours_end, its_end = pty.openpty()
    fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    with subprocess.Popen(
        [PROGRAM, "top", "-n", "1", "--root", str(ours.root)],
        stdin=subprocess.DEVNULL,
        stdout=its_end,
        env=program.clean_env(),
    ) as top:
        os.close(its_end)
        text = b""
        try:
            while more := os.read(ours_end, 1 << 16):
                text += more
        except OSError:  # the terminal ends so when its other end is closed
            pass
        os.close(ours_end)
        assert top.wait(program.LIMIT_S) == 0
    home, screen = text.decode().split("\033[J")
    assert home == "\033[H"
    lines = screen.split("\r\n")
    assert lines.pop() == ""
    return lines


def test_a_terminal_has_what_has_room_on_it() -> None:
    with cluster("--slots", "1") as ours:
        assert ours.run("drain", "node0").returncode == 0
        for _ in range(20):
            ours.sh("sleep 1000", "-n", "waits-for-nodes")
        all_of_it = look(ours, 60, 300)
        assert len(all_of_it) == 1 + 1 + 2 + 1 + 21  # head, nodes, jobs
        assert all_of_it[-1].startswith("   20  waits-for-nodes")
        for rows, columns in ((10, 40), (26, 20), (27, 300), (3, 1)):
            lines = look(ours, rows, columns)
            left = len(all_of_it) - (rows - 1)
            if left > 0:
                assert len(lines) == rows - 1 and lines.pop() == f"… and {left + 1} more"
            kept = [line[:columns] for line in all_of_it[: len(lines)]]
            kept[0] = lines[0]  # has the time
            assert lines == kept and len(lines[0]) <= columns
        assert len(look(ours, 0, 0)) == len(all_of_it)  # the terminal does not tell its size
        piped = ours.run("top", "-n", "1").stdout
        assert "\033" not in piped and re.search(r"^ +20  waits", piped, re.M)
