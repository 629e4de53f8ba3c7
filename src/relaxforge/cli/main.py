"""``relaxforge COMMAND ...``: picks the command, and turns errors into one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from pathlib import Path

from relaxforge.cli.console import lost_output, open_console
from relaxforge.core.errors import CircuitOpen, ConfigError, RelaxForgeError

DONE, FAILED, BAD_CONFIGURATION, CIRCUIT_OPEN, INTERRUPTED = 0, 1, 2, 3, 130

USAGE = """\
usage: relaxforge COMMAND ...

  train   [RUN.toml] [--flag value ...]   train a model through your agent
  rollout [RUN.toml] [--flag value ...]   run the agent and keep samples and evidence, train nothing
  doctor  [RUN.toml] [--flag value ...]   say what would go wrong, and spend nothing; with --session, run
                                          the agent once on scripted answers and show what matched
  init    DIR                             write a run file, an agent and data to start from
  show    RUN_DIR [SESSION]               list what happened, or one conversation token by token

  up      [--flag value ...]              a whole workspace here: database, pages, API, one worker
  serve   [--flag value ...]              pages and API of a workspace, on a database of your own
  worker  [--flag value ...]              runs the evaluation jobs of a workspace on this machine
  migrate [--flag value ...]              prepare that database, or bring it up to date
  publish FOLDER [--flag value ...]       publish an environment version to a workspace
  export  [--flag value ...]              rollouts of a workspace as a file
  send    RUN_DIR [--flag value ...]      evidence of a run to a workspace that did not get all of it

  --version                               print the version
  COMMAND --help                          all flags of a command, with units and defaults

exit codes: 0 done, 1 failed, 2 configuration, 3 nothing of use came back, 130 interrupted
"""

CONFIGURED = ("train", "rollout", "doctor")
"""Commands that work on a run file."""

COMMANDS = ("init", "show", "up", "serve", "worker", "migrate", "publish", "export", "send")
"""Each is the function of its name in the module of its name."""

Command = Callable[[Sequence[str]], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Without ``argv`` we are the program itself and own the console."""
    if argv is not None:
        return _run(list(argv))
    open_console()
    try:
        code = _run(sys.argv[1:])
    except SystemExit as end:  # --help prints and exits
        code = int(end.code or DONE)
    if lost := lost_output():
        return _say(f"standard output is incomplete: {lost.strerror}", code or FAILED, lost)
    return code


def _run(words: list[str]) -> int:
    try:
        return _dispatch(words)
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except RelaxForgeError as error:
        return _say(str(error), _exit_code(error), error)
    except Exception as error:  # noqa: BLE001 - the process boundary: a person gets a sentence, a bug report its hint
        hint = "this is a bug in relaxforge; RELAXFORGE_DEBUG=1 shows where"
        return _say(f"{type(error).__name__}: {error} ({hint})", FAILED, error)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(USAGE)
        return DONE if words else BAD_CONFIGURATION
    if words[0] == "--version":
        sys.stdout.write(f"relaxforge {metadata.version('relaxforge')}\n")
        return DONE
    _check_folder()
    return _command(words[0])(words[1:])


def _check_folder() -> None:
    try:
        Path.cwd()
    except FileNotFoundError:
        raise ConfigError("the folder you are in has been deleted; go to another one and try again") from None


def _command(name: str) -> Command:
    if name in CONFIGURED:
        return lambda argv: _configured(name, argv)
    if name not in COMMANDS:
        raise ConfigError(f"unknown command {name!r}; there are {', '.join((*CONFIGURED, *COMMANDS))}")
    # Imported here, one command at a time: each brings its own libraries, and --help needs none of them.
    try:
        command: Command = getattr(import_module(f"relaxforge.cli.{name}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("relaxforge"):
            raise
        raise ConfigError(f"relaxforge {name} needs {error.name}: pip install 'relaxforge[workspace]'") from error
    return command


def _configured(name: str, argv: Sequence[str]) -> int:
    """Run a command that works on a whole configuration, which is read before the heavy libraries are."""
    from relaxforge.cli.config import load_config

    rehearses = name == "doctor" and "--session" in argv
    config = load_config(name, [word for word in argv if not (rehearses and word == "--session")])
    if name == "doctor":
        from relaxforge.cli.doctor import doctor

        problems = doctor(config)
        if problems or not rehearses:
            return problems
        from relaxforge.cli.rehearsal import rehearse

        return rehearse(config)
    from relaxforge.cli.compose import run

    return run(name, config)


def _exit_code(error: RelaxForgeError) -> int:
    if isinstance(error, ConfigError):
        return BAD_CONFIGURATION
    return CIRCUIT_OPEN if isinstance(error, CircuitOpen) else FAILED


def _say(message: str, code: int, error: BaseException | None = None) -> int:
    if error is not None and os.environ.get("RELAXFORGE_DEBUG") == "1":
        raise error
    red, plain = ("\x1b[31m", "\x1b[0m") if sys.stderr.isatty() and "NO_COLOR" not in os.environ else ("", "")
    sys.stderr.write(f"{red}error: {message}{plain}\n" if error is not None else f"{message}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
