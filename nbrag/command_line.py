"""The program ``nbrag``: models on this machine, without a notebook."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nbrag.errors import NbragError, SourceNotFound

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status.

    Parameters
    ----------
    arguments
        The words behind ``nbrag``; None takes those of the process.

    Returns
    -------
    int
        0, or 1 after an error that was told, or 130 after Ctrl-C. Words that can't be read end
        the process with status 2, as ``argparse`` does.
    """
    parsed = _parser().parse_args(arguments)
    try:
        if parsed.action == "prepare":
            print(_prepare(parsed))  # noqa: T201 - the program's output
        else:
            print(_listed())  # noqa: T201
    except NbragError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    except KeyboardInterrupt:
        print("stopped; nothing was changed", file=sys.stderr)  # noqa: T201
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("nbrag", description="Models for nbrag on this machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    models = commands.add_parser("models", help="models for embedding and reranking")
    actions = models.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="show which models are here, and how to get the usual ones")
    prepare = actions.add_parser(
        "prepare",
        help="make a faster variant of a model",
        description="Fuse a model's operators and compute its products in 8 bits, as far as its "
        "outputs stay near the original's. Whatever uses the model takes the result from then on, "
        "unless told prepared=false. Needs nbrag[prepare].",
    )
    prepare.add_argument("model", help="minilm, a folder, an .onnx file, or a hub name owner/name")
    prepare.add_argument("--file", help="the graph to take where the model has several")
    prepare.add_argument(
        "--purpose", choices=("embedding", "reranking"), help="where the model's files don't tell"
    )
    prepare.add_argument(
        "--texts", metavar="FILE", help="texts to compare on, one a line, instead of nbrag's own"
    )
    prepare.add_argument("--again", action="store_true", help="even if that was done already")
    return parser


def _prepare(parsed: argparse.Namespace) -> str:
    from nbrag.models.preparing import prepare_model

    texts = None if parsed.texts is None else _lines(Path(parsed.texts))
    made = prepare_model(
        parsed.model, file=parsed.file, texts=texts, purpose=parsed.purpose, again=parsed.again
    )
    lines = [str(made)]
    if made.made:
        lines.append(
            "collections made with the model before keep needing prepared=false with its name"
        )
    return "\n".join(lines)


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceNotFound(f"{path} can't be read: {error}") from error
    return [line for line in text.split("\n") if line.strip()]


def _listed() -> str:
    from nbrag.models import list_models

    bundle = list_models()._repr_mimebundle_()
    return str(bundle["text/plain"])
