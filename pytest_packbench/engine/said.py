"""What an error says: in one form for all who tell of one, whatever its own `__str__` does."""

from __future__ import annotations

UNREADABLE = "(its text can't be read)"


def said(error: BaseException) -> str:
    """Give an error's type and its text, `ValueError: too long`; the type alone where it has no text."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(error: BaseException) -> str:
    """Give an error's text, or words that say that it can't be read: it may be anybody's."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - its `__str__` may be anybody's
        return UNREADABLE
