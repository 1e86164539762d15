"""The JSON Schema of a sample, and as much of a validator as that schema needs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from nearcache.lab.results import sample

SCHEMA = json.loads((Path(sample.__file__).parent / "sample.schema.json").read_text())
TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
    "boolean": bool, "null": type(None),
}  # fmt: skip


def faults(value: Any, schema: dict[str, Any], where: str = "$") -> list[str]:
    """Where ``value`` breaks ``schema``: as much of JSON Schema as our schema uses."""
    if "$ref" in schema:
        return faults(value, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], where)
    known = schema.get("enum", [schema["const"]] if "const" in schema else [value])
    if value not in known:
        return [f"{where} is {value!r}"]
    wanted = schema.get("type", [])
    kinds = tuple(TYPES[name] for name in ([wanted] if isinstance(wanted, str) else wanted))
    if kinds and (not isinstance(value, kinds) or (value is True and bool not in kinds)):
        return [f"{where} is a {type(value).__name__}"]
    if isinstance(value, dict):
        return _faults_of_object(value, schema, where)
    if isinstance(value, list):
        rules = [*schema.get("prefixItems", []), *[schema.get("items", {})] * len(value)]
        pairs = enumerate(zip(value, rules, strict=False))
        return [f for n, (item, rule) in pairs for f in faults(item, rule, f"{where}[{n}]")]
    return _faults_of_plain(value, schema, where)


def _faults_of_object(value: dict[str, Any], schema: dict[str, Any], where: str) -> list[str]:
    found = [f"{where} lacks {name}" for name in schema.get("required", []) if name not in value]
    for name, item in value.items():
        rule = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
        found += faults(item, rule, f"{where}.{name}")
    return found


def _faults_of_plain(value: Any, schema: dict[str, Any], where: str) -> list[str]:
    if "pattern" in schema and not re.search(schema["pattern"], value):
        return [f"{where} does not match"]
    bounds = [schema[name] for name in ("minimum", "exclusiveMinimum") if name in schema]
    if bounds and (value < bounds[0] or value == schema.get("exclusiveMinimum")):
        return [f"{where} is too small"]
    return []
