"""Small TOSA modules in the form that lowering hands over, as text."""

from __future__ import annotations

import numpy as np


def _dense(array: np.ndarray, element: str) -> str:
    shape = "x".join(map(str, array.shape))
    body = np.ascontiguousarray(array).tobytes().hex().upper()
    if array.size == 1:
        value = array.reshape(-1)[0]
        text = f"{float(value):e}" if element.startswith("f") else str(int(value))
        return f"dense<{text}> : tensor<{shape}x{element}>"
    return f'dense<"0x{body}"> : tensor<{shape}x{element}>'


class Module:
    """Collects operations of one function; every value is a name and a type."""

    def __init__(self, shape: tuple[int, ...], element: str) -> None:
        self.lines: list[str] = []
        self.count = 0
        self.result = ""
        self.argument_type = self.tensor(shape, element)
        self.shapes: dict[str, tuple[tuple[int, ...], str]] = {"%x": (shape, element)}

    @staticmethod
    def tensor(shape: tuple[int, ...], element: str) -> str:
        return f"tensor<{'x'.join(map(str, shape))}x{element}>"

    def op(
        self,
        name: str,
        operands: list[str],
        shape: tuple[int, ...],
        element: str,
        attributes: str = "",
    ) -> str:
        self.count += 1
        result = f"%{self.count}"
        kinds = ", ".join(self.tensor(*self.shapes[o]) for o in operands)
        self.lines.append(
            f'{result} = "{name}"({", ".join(operands)}) {attributes} : ({kinds}) -> {self.tensor(shape, element)}'
        )
        self.shapes[result] = (shape, element)
        return result

    def constant(self, array: np.ndarray, element: str) -> str:
        return self.op(
            "tosa.const", [], array.shape, element, f"<{{values = {_dense(array, element)}}}>"
        )

    def scalar(self, value: float, element: str, rank: int = 4) -> str:
        dtype = {"i8": np.int8, "i32": np.int32, "f32": np.float32, "f16": np.float16}[element]
        return self.constant(np.full([1] * rank, value, dtype), element)

    def pad(self, x: str, amounts: list[int], value: float) -> str:
        (n, h, w, c), element = self.shapes[x]
        self.count += 1
        shape = f"%{self.count}"
        values = ", ".join(map(str, [0, 0, *amounts, 0, 0]))
        self.lines.append(
            f'{shape} = "tosa.const_shape"() <{{values = dense<[{values}]> : tensor<8xindex>}}> : () -> !tosa.shape<8>'
        )
        fill = self.scalar(value, element, 1)
        self.count += 1
        result = f"%{self.count}"
        out = (n, h + amounts[0] + amounts[1], w + amounts[2] + amounts[3], c)
        self.lines.append(
            f'{result} = "tosa.pad"({x}, {shape}, {fill}) : ({self.tensor(*self.shapes[x])}, !tosa.shape<8>, '
            f"tensor<1x{element}>) -> {self.tensor(out, element)}"
        )
        self.shapes[result] = (out, element)
        return result

    def convolution(
        self, x: str, weights: np.ndarray, bias: np.ndarray, *, stride: int = 1, pad: int = 0
    ) -> str:
        """Depthwise when ``weights`` is [k, k, channels, 1], else [out, k, k, in]."""
        (n, h, w, c), element = self.shapes[x]
        depthwise = weights.shape[3] == 1 and weights.shape[2] == c
        k = weights.shape[0] if depthwise else weights.shape[1]
        out_c = c if depthwise else weights.shape[0]
        total = "i32" if element == "i8" else element
        size = [(s + 2 * pad - k) // stride + 1 for s in (h, w)]
        zero = self.scalar(0, element, 1)
        return self.op(
            "tosa.depthwise_conv2d" if depthwise else "tosa.conv2d",
            [x, self.constant(weights, element), self.constant(bias, total), zero, zero],
            (n, *size, out_c),
            total,
            f"<{{acc_type = {total}, dilation = array<i64: 1, 1>, pad = array<i64: {pad}, {pad}, {pad}, {pad}>, "
            f"stride = array<i64: {stride}, {stride}>}}>",
        )

    def requantize(
        self, x: str, scale: np.ndarray, zero_point: int, low: int = -128, high: int = 127
    ) -> str:
        """cast, multiply, clamp, round half to even, add the zero point, cast."""
        shape, _ = self.shapes[x]
        real = self.op("tosa.cast", [x], shape, "f32")
        factor = self.constant(scale.astype(np.float32).reshape(1, 1, 1, -1), "f32")
        real = self.op("tosa.mul", [real, factor, self.scalar(0, "i8", 1)], shape, "f32")
        real = self.clamp(real, low - zero_point, high - zero_point)
        whole = self.op("tosa.cast", [real], shape, "i32")
        whole = self.op("tosa.add", [whole, self.scalar(zero_point, "i32")], shape, "i32")
        return self.op("tosa.cast", [whole], shape, "i8")

    def clamp(self, x: str, low: float, high: float) -> str:
        shape, element = self.shapes[x]
        return self.op(
            "tosa.clamp",
            [x],
            shape,
            element,
            f"<{{min_val = {float(low):e} : {element}, max_val = {float(high):e} : {element}, "
            "nan_mode = #tosa.nan_mode<PROPAGATE>}>",
        )

    def text(self, *results: str) -> bytes:
        kinds = ", ".join(self.tensor(*self.shapes[r]) for r in results)
        body = "\n  ".join(self.lines)
        return (
            f"func.func @main(%x: {self.argument_type}) -> ({kinds}) {{\n  {body}\n"
            f"  return {', '.join(results)} : {kinds}\n}}\n"
        ).encode()
