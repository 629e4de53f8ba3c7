"""The program with every kind of console, in the shell that gives it one."""

import subprocess
import sys

import pytest

PROGRAM = f"{sys.executable} -m relaxforge.cli.main"
DESCRIPTORS = f"""exec {sys.executable} -c '
import os, sys
from relaxforge.cli.console import open_console
open_console()
opened = os.open(os.devnull, os.O_RDONLY)
print("lost")
sys.stderr.write("lost")
sys.exit(opened < 3)
'"""
"""A program that writes to all its streams; it ends with 1 when a file it opens gets the number of one of them."""


def shell(line, **options):
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, **options)


def test_output_that_cannot_be_written_is_an_error_in_one_line():
    ran = shell(f"{PROGRAM} --help >/dev/full")
    assert (ran.returncode, ran.stderr) == (1, "error: standard output is incomplete: No space left on device\n")


def test_the_exit_code_of_a_command_stays_when_its_output_is_lost_too():
    assert shell(f"{PROGRAM} >/dev/full").returncode == 2


@pytest.mark.parametrize("closed", ["", ">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_error_and_its_number_is_not_given_to_a_file(closed: str):
    ran = shell(f"{DESCRIPTORS} {closed}")
    assert ran.returncode == 0, ran.stderr


def test_a_character_that_the_console_does_not_have_is_spelled_out():
    ran = shell(f"PYTHONIOENCODING=ascii {PROGRAM} doctor 'ré.toml'")
    assert ran.stderr.startswith("error: r\\xe9.toml: cannot read this run file")
    code = "from relaxforge.cli.console import open_console; open_console(); print(chr(0x25cf))"
    assert shell(f"PYTHONIOENCODING=ascii {sys.executable} -c '{code}'").stdout == "\\u25cf\n"
