"""What every panel knows of itself, without any widget: what it says, and how far work is."""

from __future__ import annotations

from traitlets import Bool, HasTraits, Int, Tuple, Unicode

__all__ = ["PanelState"]


class PanelState(HasTraits):
    """The state that all panels share; each panel's own derives from it.

    Attributes
    ----------
    status
        One line about what happened last.
    alert
        The lines of an error that has not been dealt with; empty when there is none.
    busy
        Whether work is running that can be stopped.
    done, total
        How far it is; ``total`` is None while that is not known.
    """

    status = Unicode()
    alert = Tuple()
    busy = Bool()
    done = Int(0)
    total = Int(None, allow_none=True)
