"""The `elmo` command: finds the asked verb, runs it, and turns whatever goes wrong into one line and an exit code.

A verb is a line in VERBS and a file `elmo/cli/<verb>.py` with a typed function `run` (typer makes the flags and the
help from it) and a string EXAMPLE shown below the help. A verb of several commands has them in a dict COMMANDS, name:
(function, example), and `run` holds what they share. Only the asked verb's file is imported, and no verb imports
torch or numpy at its top, so help is quick.

Exit codes: 0 done, 1 failed, 2 asked wrongly, 3 done in part (a verb raises typer.Exit(3)), 130 Ctrl-C, 143 SIGTERM.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import signal
import sys
import traceback
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from elmo import __version__
from elmo.errors import ElmoError

VERBS = {  # verb: (module with `run` and EXAMPLE, one-line help)
    "embed": ("elmo.cli.embed", "Embed a file, one sentence a line, into a file of vectors."),
    "merge": ("elmo.cli.merge", "Put the shards of a bulk embedding together."),
    "models": ("elmo.cli.models", "List the known models and which are on this machine."),
    "info": ("elmo.cli.info", "Show what a model is made of."),
    "convert": ("elmo.cli.convert", "Convert a model between formats."),
    "similar": ("elmo.cli.similar", "Find where a word is used as in a given sentence."),
    "score": ("elmo.cli.score", "Score sentences and words with a model's own softmax."),
    "demo": ("elmo.cli.demo", "Show what it is for: words in context, neighbours, substitutes, a picture."),
    "prepare": ("elmo.cli.prepare", "Prepare text for pretraining: tokenise, count words, write shards."),
    "pretrain": ("elmo.cli.pretrain", "Train a biLM on your own text."),
    "finetune": ("elmo.cli.finetune", "Take a model further on the text of a domain."),
    "perplexity": ("elmo.cli.perplexity", "Measure how well a model predicts text."),
    "task": ("elmo.cli.task", "Train, evaluate and use the six task models, with and without ELMo."),
    "probe": ("elmo.cli.probe", "Measure what a model's layers know: parts of speech, names, senses."),
    "geometry": ("elmo.cli.geometry", "Measure how contextual each layer of a model is."),
    "report": ("elmo.cli.report", "Put all tables and pictures of the paper, from saved records, on one page."),
    "bench": ("elmo.cli.bench", "Measure how fast embedding is on this machine, beside other ways and the limit."),
    "doctor": ("elmo.cli.doctor", "Check this machine: versions, devices, golden vectors."),
}


def main(args: list[str] | None = None) -> NoReturn:
    """Runs the command line and exits."""
    words = list(sys.argv[1:] if args is None else args)
    debug = os.environ.get("ELMO_DEBUG", "") not in ("", "0")
    before_dashes = words[: words.index("--")] if "--" in words else words
    if "--debug" in before_dashes:  # allowed before and after the verb
        debug = True
        words = [word for word in before_dashes if word != "--debug"] + words[len(before_dashes) :]
    _prepare_process()
    try:
        code = _run_verb(words)
        if sys.stdout is not None:
            sys.stdout.flush()  # a full disk shows here, not in the interpreter's last breath
    except BaseException as error:
        if debug and not isinstance(error, (SystemExit, typer.Exit)):
            traceback.print_exc()
        code = _explain(error)
    sys.exit(code)


def _prepare_process() -> None:
    # OpenMP threads that spin at barriers lose 10x as soon as another process wants a core; read when torch is imported
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    signal.signal(signal.SIGTERM, _exit_on_sigterm)
    if sys.stdout is not None and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # the real stdout, a TextIOWrapper


def _exit_on_sigterm(*_: object) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)  # unwinds, so that files in the making are removed


def _run_verb(words: list[str]) -> int:
    group = typer.main.get_command(app)
    if "_ELMO_COMPLETE" in os.environ:
        group.main(words, prog_name="elmo", complete_var="_ELMO_COMPLETE")
    try:
        with group.make_context("elmo", words) as context:
            group.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    return 0


def _explain(error: BaseException) -> int:
    """Prints what the error means to a person, and gives the exit code."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if isinstance(error, ElmoError):
        return _say(str(error), error.exit_code)
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return _say("interrupted", 130)
    if isinstance(error, BrokenPipeError):  # the reader, head say, has seen enough
        _drop_stdout()
        return 0
    if isinstance(error, OSError) and error.filename is None and error.errno in (errno.ENOSPC, errno.EIO, errno.EBADF):
        _drop_stdout()
        return _say(f"standard output cannot be written ({error.strerror})", 1)
    if hasattr(error, "show") and hasattr(error, "exit_code"):  # typer's usage errors; their class is not public
        error.show()
        return int(error.exit_code)
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return _say(f"internal error: {what} (run with --debug for the traceback)", 1)


def _say(message: str, code: int) -> int:
    if sys.stderr is not None:
        print(f"elmo: {message}", file=sys.stderr)
    return code


def _drop_stdout() -> None:
    # what is still buffered can go nowhere; without this the interpreter tries again at exit and complains
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


class _Verbs(TyperGroup):
    """The commands of VERBS, each imported only when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        module_name, summary = VERBS[cmd_name]
        module = importlib.import_module(module_name)
        epilog = f"Example: {module.EXAMPLE}"
        verb = typer.Typer(add_completion=False, rich_markup_mode=None)
        if not hasattr(module, "COMMANDS"):
            verb.command(cmd_name, short_help=summary, epilog=epilog)(module.run)
            return typer.main.get_command(verb)
        verb.callback(short_help=summary, epilog=epilog, no_args_is_help=True)(module.run)
        for name, (command, example) in module.COMMANDS.items():
            verb.command(name, epilog=f"Example: {example}")(command)
        return typer.main.get_command(verb)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        verb = args[0]
        if verb not in VERBS:
            near = difflib.get_close_matches(verb, VERBS, n=1, cutoff=0.5)
            ctx.fail(f"No such command '{verb}'." + (f" Did you mean '{near[0]}'?" if near else ""))
        return verb, self.get_command(ctx, verb), args[1:]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, summary) for verb, (_, summary) in VERBS.items()])


# Plain text, no colours and no boxes: the same on a terminal, in a pipe and in a log, and 100 ms quicker.
app = typer.Typer(cls=_Verbs, rich_markup_mode=None, context_settings={"help_option_names": ["--help", "-h"]})


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"elmo {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error (or ELMO_DEBUG=1).")] = False,
) -> None:
    """ELMo: deep contextualized word representations."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)
