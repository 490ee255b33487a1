"""Writes the JSON schemas of the documents that leave edgectl, from the contract's records.

generate_schemas.py            rewrites host/edgectl/schemas/*.schema.json
generate_schemas.py --check    fails when a file is not what it would write
"""

from __future__ import annotations

import dataclasses
import json
import sys
import types
import typing
from pathlib import Path
from typing import Any, Literal

from edgectl.benchmarking import BenchmarkReport, ComparisonReport
from edgectl.cli import documents
from edgectl_runner import contract

FOLDER = Path(__file__).resolve().parent.parent / "host" / "edgectl" / "schemas"
DOCUMENTS = {
    "bundle-manifest": contract.Manifest,
    "run-report": contract.RunReport,
    "deployment": documents.DeploymentDocument,
    "error": documents.ErrorDocument,
    "benchmark": BenchmarkReport,
    "comparison": ComparisonReport,
}
SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}


def schema_of(hint: Any, records: dict[str, Any]) -> dict[str, Any]:
    """The schema of one type hint; records met on the way are added to ``records``."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return {}
    if hint in SCALARS:
        return {"type": SCALARS[hint]}
    if hint is type(None):
        return {"type": "null"}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema_of(option, records) for option in arguments]}
    if origin is tuple:
        return {"type": "array", "items": schema_of(arguments[0], records)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(arguments[1], records)}
    if hint.__name__ not in records:
        records[hint.__name__] = None  # reserves the name while its fields are looked at
        records[hint.__name__] = record_schema(hint, records)
    return {"$ref": f"#/$defs/{hint.__name__}"}


def record_schema(record: Any, records: dict[str, Any]) -> dict[str, Any]:
    """The schema of a dataclass; unknown fields are allowed, as a newer peer may add some."""
    hints = typing.get_type_hints(record)
    missing = dataclasses.MISSING
    properties = {}
    for field in dataclasses.fields(record):
        properties[field.name] = schema_of(hints[field.name], records)
        if field.name == "schema_version":
            properties[field.name] = {"const": field.default}
    required = [
        field.name
        for field in dataclasses.fields(record)
        if field.default is missing and field.default_factory is missing
    ]
    return {"type": "object", "properties": properties, "required": required}


def document(name: str, record: Any) -> str:
    """The text of one schema file."""
    records: dict[str, Any] = {}
    body = record_schema(record, records)
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"edgectl {name}",
        **body,
        "$defs": records,
    }
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def main() -> None:
    """Writes or checks every schema."""
    for name, record in DOCUMENTS.items():
        path, text = FOLDER / f"{name}.schema.json", document(name, record)
        if "--check" in sys.argv[1:]:
            if not path.exists() or path.read_text() != text:
                raise SystemExit(f"{path.name} is out of date: run scripts/generate_schemas.py")
        else:
            path.write_text(text)


main()
