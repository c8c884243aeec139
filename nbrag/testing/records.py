"""Figures that a notebook records and a test reads back."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["RECORD_TYPE", "read_records", "record"]

#: The media type under which a record stands in a notebook's outputs.
RECORD_TYPE = "application/vnd.nbrag.record+json"


def record(name: str, value: Any) -> None:
    """Show a figure, and keep it in the notebook's outputs for tests.

    Parameters
    ----------
    name
        What the figure is, e.g. ``hybrid nDCG@10``; once per notebook.
    value
        Anything that JSON can hold; scalars of NumPy are taken as plain numbers.

    Raises
    ------
    TypeError
        When JSON can't hold the value.
    ValueError
        When a number is not finite.
    """
    if callable(getattr(value, "item", None)):
        value = value.item()
    json.dumps(value, allow_nan=False)
    text = f"{name} = {value:.4f}" if isinstance(value, float) else f"{name} = {value}"
    # Only a process in which IPython is imported already can be a notebook.
    core = sys.modules.get("IPython.core.getipython")
    if core is None or core.get_ipython() is None:
        print(text)  # noqa: T201 - in a script this is the display
        return
    from IPython.display import display

    bundle = {RECORD_TYPE: {"name": name, "value": value}, "text/plain": text}
    display(bundle, raw=True)  # type: ignore[no-untyped-call]


def read_records(notebook: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures that an executed notebook has recorded, by name.

    Parameters
    ----------
    notebook
        A notebook node, or the mapping that a notebook file holds.

    Raises
    ------
    ValueError
        When a name was recorded twice.
    """
    records: dict[str, Any] = {}
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            found = output.get("data", {}).get(RECORD_TYPE)
            if found is None:
                continue
            if found["name"] in records:
                raise ValueError(f"'{found['name']}' was recorded twice")
            records[found["name"]] = found["value"]
    return records
