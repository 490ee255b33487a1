"""A report in the form that its file's name asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edgectl.errors import UsageError
from edgectl.reports.data import ReportData
from edgectl.reports.html import report_page
from edgectl.reports.markdown import report_markdown
from edgectl.reports.tables import runs_csv

__all__ = ["FORMS", "check_form", "write_report", "write_text"]

FORMS: dict[str, Callable[[ReportData], str]] = {
    ".html": report_page,
    ".md": report_markdown,
    ".csv": lambda data: runs_csv(data.benchmark),
}


def check_form(path: Path) -> None:
    """Refuses a name that tells no form, before anything is measured.

    Raises:
        UsageError: the suffix is none of `FORMS`.
    """
    if path.suffix.lower() not in FORMS:
        raise UsageError(
            f"{path.name} does not say what kind of report it is to be.",
            next_step=f"Let its name end in {', '.join(FORMS)}.",
        )
    if not path.absolute().parent.is_dir():
        raise UsageError(f"There is no folder {path.absolute().parent} for the report.")


def write_report(data: ReportData, path: Path) -> None:
    """Writes it.

    Raises:
        UsageError: the form is unknown, or the file cannot be written.
    """
    check_form(path)
    write_text(FORMS[path.suffix.lower()](data), path)


def write_text(text: str, path: Path) -> None:
    """Writes a file of text.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
