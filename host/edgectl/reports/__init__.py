"""Reports of benchmarks: one self-contained HTML page, Markdown, CSV.

write_report(ReportData(benchmark=report, layers=layers), Path("out.html"))
"""

from edgectl.reports.data import (
    CoverageSummary,
    ReportData,
    coverage_of,
    layers_of_profile,
    quantization_of,
)
from edgectl.reports.html import history_page, report_page
from edgectl.reports.layers import LayerCost, with_shares
from edgectl.reports.markdown import report_markdown
from edgectl.reports.tables import queries_csv, runs_csv
from edgectl.reports.write import check_form, write_report, write_text

__all__ = [
    "CoverageSummary",
    "LayerCost",
    "ReportData",
    "check_form",
    "coverage_of",
    "history_page",
    "layers_of_profile",
    "quantization_of",
    "queries_csv",
    "report_markdown",
    "report_page",
    "runs_csv",
    "with_shares",
    "write_report",
    "write_text",
]
