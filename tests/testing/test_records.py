"""Figures recorded in a notebook come back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from nbrag.testing.records import RECORD_TYPE, read_records, record


def notebook_of(*outputs: dict[str, Any]) -> dict[str, Any]:
    cells = [
        {"cell_type": "code", "outputs": [{"output_type": "display_data", "data": data}]}
        for data in outputs
    ]
    return {"cells": [{"cell_type": "markdown"}, *cells]}


def test_a_record_is_shown_and_read(shell: InteractiveShell) -> None:
    with capture_output() as captured:
        record("nDCG@10", np.float32(0.5))
        record("rows", [1, "two", None])
    data = [output.data for output in captured.outputs]
    assert [entry["text/plain"] for entry in data] == [
        "nDCG@10 = 0.5000",
        "rows = [1, 'two', None]",
    ]
    assert read_records(json.loads(json.dumps(notebook_of(*data)))) == {
        "nDCG@10": 0.5,
        "rows": [1, "two", None],
    }


@pytest.mark.parametrize(("value", "error"), [(object(), TypeError), (float("nan"), ValueError)])
def test_what_json_can_not_hold_is_refused(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        record("bad", value)


def test_a_name_recorded_twice_is_an_error() -> None:
    entry = {RECORD_TYPE: {"name": "a", "value": 1}}
    with pytest.raises(ValueError, match="'a' was recorded twice"):
        read_records(notebook_of(entry, entry))
