"""The entry point of the `elmo` command: it runs a verb and turns every error into one line and an exit code.

A verb is a line in VERBS and a file `elmo/cli/<verb>.py` with a typed function `run` (typer derives the flags and the
help from it) and a string EXAMPLE, which is printed below the help. A verb with several commands lists them in a dict
COMMANDS, name: (function, example); its `run` only carries the help of the group. Only the file of the requested verb
is imported, and no verb imports torch or numpy at module level, so that `--help` is fast.

Exit codes: 0 success, 1 failure, 2 usage error, 3 partial success (a verb raises typer.Exit(3)), 130 Ctrl-C,
143 SIGTERM.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

try:
    from elmo import __version__
except ImportError:  # elmo/__init__.py is of another distribution
    sys.exit(
        "elmo: another package with the name elmo has replaced files of elmo-lm.\n"
        "  Remove both (pip uninstall elmo elmo-lm) and install elmo-lm again, as its README says."
    )
from elmo.errors import ElmoError, printable

VERBS = {  # verb: (module with `run` and EXAMPLE, one-line help)
    "embed": ("elmo.cli.embed", "Embed the sentences of a file, or of many files, and write the vectors."),
    "merge": ("elmo.cli.merge", "Merge the shards of a bulk embedding into one file."),
    "models": ("elmo.cli.models", "List the known models: those shipped, on this machine, and to fetch."),
    "fetch": ("elmo.cli.fetch", "Download a published model, so that it can be loaded by its name."),
    "info": ("elmo.cli.info", "Show the architecture, size and origin of a model."),
    "convert": ("elmo.cli.convert", "Convert a model between formats."),
    "export": ("elmo.cli.export", "Write a model's network for ONNX or torch.export, or static word vectors."),
    "similar": ("elmo.cli.similar", "Find uses of a word that are similar to its use in a given sentence."),
    "score": ("elmo.cli.score", "Print log-probabilities of sentences and words under a model's softmax."),
    "serve": ("elmo.cli.serve", "Serve a model over HTTP: vectors, scores, substitutes and the explorer page."),
    "demo": ("elmo.cli.demo", "Demonstrate the package: words in context, neighbours, substitutes, a picture."),
    "explore": ("elmo.cli.explore", "Open a page in the browser that shows the meanings of words in context."),
    "prepare": ("elmo.cli.prepare", "Prepare text for pretraining: tokenise it, count words and write shards."),
    "pretrain": ("elmo.cli.pretrain", "Train a biLM on your own text."),
    "finetune": ("elmo.cli.finetune", "Continue the training of a model on text of another domain."),
    "perplexity": ("elmo.cli.perplexity", "Measure the perplexity of a model on text files."),
    "task": ("elmo.cli.task", "Train, evaluate and apply the six task models, with and without ELMo."),
    "probe": ("elmo.cli.probe", "Measure what each layer encodes: parts of speech, named entities, word senses."),
    "geometry": ("elmo.cli.geometry", "Measure how contextual each layer of a model is."),
    "report": ("elmo.cli.report", "Build one page with the tables and figures of the paper from saved records."),
    "bench": ("elmo.cli.bench", "Measure embedding speed on this machine and compare implementations."),
    "doctor": ("elmo.cli.doctor", "Check the installation: versions, devices and reference vectors."),
}


def main(args: list[str] | None = None) -> NoReturn:
    """Runs the command line and exits the process with its exit code."""
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
            sys.stdout.flush()  # a full disk is reported here instead of at interpreter shutdown
    except BaseException as error:
        if debug and not isinstance(error, (SystemExit, typer.Exit)):
            traceback.print_exc()
        code = _explain(error, words)
    sys.exit(code)


def _prepare_process() -> None:
    signal.signal(signal.SIGTERM, _exit_on_sigterm)
    _protect_stderr()
    if sys.stdout is not None and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # stdout is a TextIOWrapper


def _protect_stderr() -> None:
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # a closed one; else a result file would take its number
        pass
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (open until the process ends)
    elif sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        stderr = sys.stderr
        sys.stderr = _Stderr(stderr.buffer, encoding=stderr.encoding, errors=stderr.errors, line_buffering=True)


class _Stderr(io.TextIOWrapper):
    """Standard error that is discarded from the first failure on: a full disk loses messages, but no results."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError:
            _discard(2)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            _discard(2)


def _exit_on_sigterm(*_: object) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)  # unwinds the stack, so that unfinished files are removed


def _run_verb(words: list[str]) -> int:
    group = typer.main.get_command(app)
    if "_ELMO_COMPLETE" in os.environ:
        group.main(words, prog_name="elmo", complete_var="_ELMO_COMPLETE")
    try:
        with group.make_context("elmo", words) as context:
            group.invoke(context)
    except typer.Exit as exit_request:
        return exit_request.exit_code
    return 0


def _explain(error: BaseException, words: Sequence[str]) -> int:
    """Prints a message for the user of the command line `words` and returns the exit code of the error."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if isinstance(error, ElmoError):
        from elmo.cli.hints import usable_hint

        hint = usable_hint(error.hint, typer.main.get_command(app), words)
        return _fail(f"{error.message}\n  {hint}" if hint else error.message, error.exit_code)
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return _fail("interrupted", 130)
    if isinstance(error, BrokenPipeError):  # the reader of a pipe, for example `head`, has closed it
        _discard(1)
        return 0
    if isinstance(error, OSError) and error.filename is None and error.errno in (errno.ENOSPC, errno.EIO, errno.EBADF):
        _discard(1)
        return _fail(f"standard output cannot be written ({error.strerror})", 1)
    if hasattr(error, "show") and hasattr(error, "exit_code"):  # typer's usage errors; their class is not public
        from elmo.cli.hints import explain_argument_flag, explain_extra_arguments

        explain_argument_flag(error)
        explain_extra_arguments(error)
        error.show()
        return int(error.exit_code)
    description = " ".join(f"{type(error).__name__}: {error}".split())
    return _fail(f"internal error: {description} (run with --debug for the traceback)", 1)


def _fail(message: str, code: int) -> int:
    if sys.stderr is not None:
        print(f"elmo: {printable(message)}", file=sys.stderr)
    return code


def _discard(descriptor: int) -> None:
    # buffered output cannot be written; without this the interpreter tries again at exit and prints an error
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


class _Verbs(TyperGroup):
    """The commands of VERBS; a module is imported only when its verb is requested."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        module_name, summary = VERBS[cmd_name]
        module = importlib.import_module(module_name)
        from elmo.cli.help_groups import GroupedCommand

        epilog = f"Example: {module.EXAMPLE}"
        verb = typer.Typer(add_completion=False, rich_markup_mode=None)
        if not hasattr(module, "COMMANDS"):
            verb.command(cmd_name, cls=GroupedCommand, short_help=summary, epilog=epilog)(module.run)
            return typer.main.get_command(verb)
        verb.callback(short_help=summary, epilog=epilog, no_args_is_help=True)(module.run)
        for name, (command, example) in module.COMMANDS.items():
            verb.command(name, cls=GroupedCommand, epilog=f"Example: {example}")(command)
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


def _current_option_name(name: str) -> str:
    """--tokenize is the earlier name of --tokenizer; every verb accepts both."""
    return "tokenizer" if name == "tokenize" else name


# Plain text without colours and boxes: identical on a terminal, in a pipe and in a log, and 100 ms faster.
_SETTINGS = {"help_option_names": ["--help", "-h"], "token_normalize_func": _current_option_name}
app = typer.Typer(cls=_Verbs, rich_markup_mode=None, context_settings=_SETTINGS)


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"elmo {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print the traceback of an error (also: ELMO_DEBUG=1).")
    ] = False,
) -> None:
    """ELMo: deep contextualized word representations."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)
