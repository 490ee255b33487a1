"""Lets a serialized program through only if none of its texts can lead torch to run code.

torch turns four kinds of text in such a document into something else: operator names (looked up
with ``getattr``), size expressions (parsed by sympy, which evaluates Python), guards (executed),
and pytree descriptions (which may import). Each is held to a short list of known forms here;
guards and the metadata that names functions are dropped, since nothing needs them.
"""

from __future__ import annotations

import json
import re
from typing import Any

from edgectl.sources.tensor_file import MalformedTensorFileError

__all__ = ["checked_program"]

_OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims|quantized_decomposed|torchao|torchvision)\."
    r"(__(i?and|i?or|i?xor|i?lshift|i?rshift)__|(?!__)[A-Za-z_]\w*)\.(?!__)\w+\Z"
    r"|torch\.ops\.higher_order\."
    r"(cond|while_loop|scan|associative_scan|map_impl|wrap_with_set_grad_enabled|wrap_with_autocast)\Z"
    r"|_operator\.(add|sub|mul|floordiv|truediv|mod|pow|neg|pos|abs|eq|ne|lt|le|gt|ge|and_|or_|not_"
    r"|getitem|lshift|rshift|index)\Z"
    r"|torch\.sym_(int|float|max|min|not|ite|sum|sqrt)\Z|torch\._sym_sqrt\Z"
    r"|math\.(ceil|floor|trunc|sqrt)\Z"
)
# Operators that reach files or other processes; nothing that is compiled for a device may.
_FORBIDDEN = re.compile(r"torch\.ops\.aten\.(from_file|_?save|_?load|.*_storage)\b")
_EXPRESSION = re.compile(r"[\w\s+\-*/%(),.<>=!&|~]*\Z")
_WORD = re.compile(r"[A-Za-z_]\w*")
_SPELLED_SYMBOL = re.compile(
    r"Symbol\('((?:s|u|z|zuf|zf|f)\d+)'"
    r"(?:, (?:positive|nonnegative|integer|real)=(?:True|False))*\)"
)
_SYMBOL = re.compile(r"(s|u|z|zuf|zf|f)\d+\Z")
_FUNCTIONS = frozenset(
    re.findall(
        r"\w+",
        """
        FloorDiv ModularIndexing Where PythonMod Mod CleanDiv CeilToInt FloorToInt CeilDiv
        LShift RShift PowByNatural FloatPow FloatTrueDiv IntTrueDiv
        IsNonOverlappingAndDenseIndicator TruncToFloat TruncToInt RoundToInt RoundDecimal
        ToFloat Identity Max Min Eq Ne Lt Le Gt Ge And Or Not True False true false oo int_oo
        Integer Float Rational Abs floor ceiling BitwiseFn_bitwise_and BitwiseFn_bitwise_or
        """,
    )
)
_CONTAINERS = ("builtins.tuple", "builtins.list", "builtins.dict")
_KEPT_METADATA = ("stack_trace", "nn_module_stack")
_TEXT_LIMIT = 1 << 16
# sympy computes powers of numbers at once: 9**9**9 would never end.
_HUGE = re.compile(r"\d{20}|\*\*.*\*\*|\*\*\s*\(?\s*\d{3}")


def checked_program(document: Any) -> dict[str, Any]:
    """The document without guards and function names in its metadata.

    Raises:
        MalformedTensorFileError: it holds a text that is not of a known form.
    """
    if not isinstance(document, dict):
        raise MalformedTensorFileError("the program is not an object")
    document["guards_code"] = []
    module = document["graph_module"]
    module["treespec_namedtuple_fields"] = {}
    module["metadata"] = {}
    # Entries of inner modules serve unflattening only.
    module["module_call_graph"] = [e for e in module["module_call_graph"] if e["fqn"] == ""]
    for name in document.get("range_constraints", {}):
        _expression(name)
    _walk(document)
    return document


def _walk(value: Any) -> None:
    """Checks everything below ``value``; raises on the first text that is not known."""
    if isinstance(value, list):
        for item in value:
            _walk(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if (key == "target" and "inputs" in value) or key == "as_operator":
                _operator(item)
            elif key == "expr_str":
                _expression(item)
            elif key in ("in_spec", "out_spec"):
                _tree(json.loads(item) if isinstance(item, str) else item)
                continue
            elif key in ("custom_obj_name", "as_custom_obj", "custom_obj", "class_fqn"):
                _no_object(item)
            elif key == "metadata" and isinstance(item, dict):
                value[key] = {
                    k: v for k, v in item.items() if k in _KEPT_METADATA and isinstance(v, str)
                }
                continue
            _walk(item)


def _operator(name: Any) -> None:
    if not isinstance(name, str) or not _OPERATOR.match(name) or _FORBIDDEN.match(name):
        raise MalformedTensorFileError(f"operator {str(name)[:80]!r}")


def _expression(text: Any) -> None:
    text = _SPELLED_SYMBOL.sub(r"\1", text) if isinstance(text, str) else text
    known = (
        isinstance(text, str)
        and len(text) < _TEXT_LIMIT
        and _EXPRESSION.match(text)
        and not _HUGE.search(text)
        and not re.search(r"[A-Za-z_)]\s*\.|\.\s*[A-Za-z_]", text)  # no attribute of anything
        and all(w in _FUNCTIONS or _SYMBOL.match(w) for w in _WORD.findall(_numbers_out(text)))
    )
    if not known:
        raise MalformedTensorFileError(f"size expression {str(text)[:80]!r}")


def _numbers_out(text: str) -> str:
    return re.sub(r"(?<![\w.])\d+(\.\d*)?([eE][+-]?\d+)?", " ", text)


def _tree(spec: Any) -> None:
    if isinstance(spec, list) and len(spec) == 2 and spec[0] == 1:
        spec = spec[1]
    if not isinstance(spec, dict) or spec.keys() != {"type", "context", "children_spec"}:
        raise MalformedTensorFileError("the description of a pytree")
    kind, context = spec["type"], spec["context"]
    plain = kind is None and context is None
    if kind in _CONTAINERS:
        keys = json.loads(context) if isinstance(context, str) else object()
        plain = keys is None or (isinstance(keys, list) and all(isinstance(k, str) for k in keys))
    if not plain:
        raise MalformedTensorFileError(f"a pytree of {str(kind)[:80]!r}")
    for child in spec["children_spec"]:
        _tree(child)


def _no_object(item: Any) -> None:
    if item not in (None, "", {}, []):
        raise MalformedTensorFileError("a script object")
