"""The settings of a notebook, and where each of them comes from.

Precedence, highest first: an option of the call (``-k 3``), ``%rag_config``, the environment
(``NBRAG_TOP_K``), the table ``[tool.nbrag]`` of the nearest ``pyproject.toml``, the default.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbrag.errors import ConfigurationError, did_you_mean
from nbrag.rendering import Rendering, render_table

__all__ = ["SETTINGS", "Configuration", "Setting", "SettingValue", "SettingsView", "masked"]

_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}
_SECRET_NAME = re.compile(r"key|token|secret|password", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"(?<=://)[^/@\s]+@|\b(?:sk|pk|hf|ghp|xox[abp])[-_][\w-]{8,}")


def masked(text: str) -> str:
    """Return the text with anything that looks like a key or a password replaced by stars."""
    return _SECRET_VALUE.sub(lambda found: "***" + ("@" if found[0].endswith("@") else ""), text)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text")
    return value.strip()


def _optional_text(value: Any) -> str | None:
    text = _text(value)
    return None if text == "none" else text


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().casefold()
    if word in _TRUE | _FALSE:
        return word in _TRUE
    raise ValueError("true or false")


def _count(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    if (
        isinstance(value, str)
        and value.strip().isascii()
        and value.strip().isdigit()
        and int(value)
    ):
        return int(value)
    raise ValueError("a whole number of 1 or more")


def _limit(value: Any) -> int | None:
    return None if value is None or value == "none" else _count(value)


def _money(value: Any) -> float | None:
    if value is None or value == "none":
        return None
    try:
        amount = float(value)
    except (TypeError, ValueError):
        amount = -1.0
    if isinstance(value, bool) or not 0 <= amount < float("inf"):
        raise ValueError("an amount of US dollars, or none")
    return amount


def _index(value: Any) -> str:
    if value in ("auto", "exact", "hnsw"):
        return str(value)
    raise ValueError("auto, exact or hnsw")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes
    ----------
    name
        As it is written in ``%rag_config`` and in ``[tool.nbrag]``.
    default
        The value when nothing sets it.
    read
        Turns what was given into the value; raises ValueError with what it takes.
    description
        What it does.
    choices
        Values for completion.
    """

    name: str
    default: Any
    read: Callable[[Any], Any]
    description: str
    choices: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """Name of the environment variable."""
        return f"NBRAG_{self.name.upper()}"


_TRUTH = ("true", "false")
#: All settings, in the order in which they are shown.
SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("database", ":memory:", _text, "file of the workspace, or :memory:"),
        Setting("read_only", False, _truth, "open the file for reading only", _TRUTH),
        Setting("embedder", "minilm", _text, "minilm, a folder, a hub name, litellm:..."),
        Setting("index", "auto", _index, "how vectors are searched", ("auto", "exact", "hnsw")),
        Setting("collection", None, _optional_text, "collection when none is named"),
        Setting("pipeline", "default", _text, "pipeline when none is named"),
        Setting("top_k", 5, _count, "most results of a search"),
        Setting("model", None, _optional_text, "chat model: provider/model, local, replay:FILE"),
        Setting("budget_calls", None, _limit, "most calls of the chat model"),
        Setting("budget_tokens", None, _limit, "most tokens, read and written"),
        Setting("budget_money", None, _money, "most US dollars"),
        Setting("concurrency", 8, _count, "most calls of the chat model at the same time"),
        Setting("verbose_errors", False, _truth, "show tracebacks of nbrag's errors", _TRUTH),
    )
}


@dataclass(frozen=True, slots=True)
class SettingValue:
    """A setting's value.

    Attributes
    ----------
    value
        The value.
    source
        Where it comes from: ``%rag_config``, a variable's name, ``pyproject.toml``, ``default``.
    folder
        What a relative path counts from.
    """

    value: Any
    source: str
    folder: Path


class SettingsView(Mapping[str, Any]):
    """All settings with their values, defaults and sources; shows as a table.

    Parameters
    ----------
    values
        One value per setting.
    """

    def __init__(self, values: Mapping[str, SettingValue]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        """Return a setting's value."""
        return self._values[name].value

    def __iter__(self) -> Any:
        """Go through the names."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return how many settings there are."""
        return len(self._values)

    def source(self, name: str) -> str:
        """Return where a setting's value comes from."""
        return self._values[name].source

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Rendering:  # noqa: ARG002
        """Return the settings as a table."""
        rows = [
            [
                name,
                _shown(found.value),
                _shown(SETTINGS[name].default),
                found.source,
                SETTINGS[name].description,
            ]
            for name, found in self._values.items()
        ]
        return render_table(
            "Settings of nbrag", ["setting", "value", "default", "source", "meaning"], rows
        )

    def __repr__(self) -> str:
        """Return the settings that are not at their defaults."""
        changed = [
            f"{name}={_shown(found.value)}"
            for name, found in self._values.items()
            if found.source != "default"
        ]
        return f"<SettingsView {' '.join(changed) or 'all defaults'}>"


def _shown(value: Any) -> str:
    """Return a value for display: keys masked, of an absolute path only its name."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    text = masked(str(value))
    return f"…/{Path(text).name}" if Path(text).is_absolute() else text


class Configuration:
    """The settings of one notebook, resolved anew at each look.

    Parameters
    ----------
    environment
        The environment; by default the process's own.

    Attributes
    ----------
    given
        What ``%rag_config`` has set.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self.given: dict[str, SettingValue] = {}

    def set(
        self,
        values: Mapping[str, Any],
        *,
        source: str = "%rag_config",
        folder: Path | None = None,
    ) -> None:
        """Set several settings; either all of them are valid and set, or none is.

        Raises
        ------
        ConfigurationError
            For an unknown name or a value that can't be used.
        """
        base = folder or Path.cwd()
        found = {name: _read(name, value, source, base) for name, value in values.items()}
        self.given.update(found)

    def reset(self, names: Iterable[str] = ()) -> None:
        """Forget what was set here: the named settings, or all of them."""
        for name in list(names) or list(self.given):
            _known(name, "")
            self.given.pop(name, None)

    def resolve(self) -> dict[str, SettingValue]:
        """Return every setting with its value and source.

        Raises
        ------
        ConfigurationError
            When the environment or ``pyproject.toml`` holds a value that can't be used.
        """
        folder = Path.cwd()
        values = {name: SettingValue(s.default, "default", folder) for name, s in SETTINGS.items()}
        values.update(_from_project(folder))
        for name, setting in SETTINGS.items():
            raw = self._environment.get(setting.variable)
            if raw is not None:
                values[name] = _read(name, raw, setting.variable, folder)
        values.update(self.given)
        return values

    def __getitem__(self, name: str) -> Any:
        """Return a setting's value."""
        return self.resolve()[name].value

    def view(self) -> SettingsView:
        """Return all settings for display."""
        return SettingsView(self.resolve())


def _known(name: str, source: str) -> Setting:
    if name in SETTINGS:
        return SETTINGS[name]
    place = f" ({source})" if source and source != "%rag_config" else ""
    hint = did_you_mean(name, SETTINGS, what="settings")
    if _SECRET_NAME.search(name) and not hint.startswith("did you mean"):
        hint = "keys are read from the environment only, e.g. OPENAI_API_KEY"
    raise ConfigurationError(f"there is no setting '{name}'{place}.", hint=hint)


def _read(name: str, value: Any, source: str, folder: Path) -> SettingValue:
    setting = _known(name, source)
    try:
        return SettingValue(setting.read(value), source, folder)
    except ValueError as error:
        place = f" ({source})" if source != "%rag_config" else ""
        shown = masked(str(value))
        raise ConfigurationError(
            f"setting '{name}'{place}: '{shown}' is not {error}.",
            hint=did_you_mean(str(value), setting.choices, what="values")
            if setting.choices
            else f"%rag_config --reset {name} brings the default back",
        ) from None


def _from_project(folder: Path) -> dict[str, SettingValue]:
    """Return the settings in ``[tool.nbrag]`` of the nearest pyproject.toml."""
    for parent in (folder, *folder.parents):
        path = parent / "pyproject.toml"
        if path.is_file():
            break
    else:
        return {}
    try:
        table = tomllib.loads(path.read_text("utf-8")).get("tool", {}).get("nbrag", {})
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"pyproject.toml can't be read: {error}.", hint="repair the file or remove it"
        ) from None
    return {name: _read(name, value, "pyproject.toml", parent) for name, value in table.items()}
