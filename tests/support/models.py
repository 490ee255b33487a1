"""Well-known architectures with random weights, written for these tests and the benchmarks.

``edgectl deploy tests/support/models.py:mobilenet_v2`` works: every factory returns a module in
evaluation mode and its example inputs. The layer shapes follow the papers; the weights come from
a fixed seed, and BatchNorm has statistics as after training, so that activations neither vanish
nor explode. `MODELS` lists all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["MODELS"]

Model = tuple[nn.Module, tuple[Tensor, ...]]
MODELS: dict[str, Callable[[], Model]] = {}


def model(function: Callable[[], Model]) -> Callable[[], Model]:
    """Lists a factory and fixes its seed."""

    def factory() -> Model:
        torch.manual_seed(0)
        module, inputs = function()
        return _settle(module, inputs), inputs

    factory.__name__ = function.__name__
    factory.__doc__ = function.__doc__
    MODELS[function.__name__] = factory
    return factory


def _settle(module: nn.Module, inputs: tuple[Tensor, ...]) -> nn.Module:
    """Weights by He's rule; BatchNorm's statistics as this input gives them; evaluation mode."""
    norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm2d)]
    for m in module.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out")
    for norm in norms:
        norm.momentum = 1.0
        nn.init.uniform_(norm.weight, 0.8, 1.2)
        nn.init.uniform_(norm.bias, -0.1, 0.1)
    if norms:
        module.train()
        with torch.no_grad():
            module(*(torch.cat([x, x.flip(-1)]) if x.is_floating_point() else x for x in inputs))
    return module.eval()


def _conv(i: int, o: int, k: int, s: int = 1, groups: int = 1, act: nn.Module | None = None):
    layers = [nn.Conv2d(i, o, k, s, k // 2, groups=groups, bias=False), nn.BatchNorm2d(o)]
    return nn.Sequential(*layers, *([act] if act is not None else []))


def _image(size: int) -> Tensor:
    return torch.randn(1, 3, size, size)


class InvertedResidual(nn.Module):
    """Expand, depthwise, (squeeze and excite,) project: MobileNetV2 and V3."""

    def __init__(self, i, wide, o, k, s, act, excite=False):
        super().__init__()
        layers = [] if wide == i else [_conv(i, wide, 1, act=act())]
        layers.append(_conv(wide, wide, k, s, groups=wide, act=act()))
        if excite:
            layers.append(SqueezeExcite(wide))
        self.conv = nn.Sequential(*layers, _conv(wide, o, 1))
        self.residual = s == 1 and i == o

    def forward(self, x):
        return x + self.conv(x) if self.residual else self.conv(x)


class SqueezeExcite(nn.Module):
    def __init__(self, c):
        super().__init__()
        inner = max(8, (c // 4 + 4) // 8 * 8)
        inner += 8 if inner < 0.9 * (c // 4) else 0
        self.down, self.up = nn.Conv2d(c, inner, 1), nn.Conv2d(inner, c, 1)

    def forward(self, x):
        scale = self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1))))
        return x * F.hardsigmoid(scale)


class Classifier(nn.Module):
    """Features, mean over the image, head."""

    def __init__(self, features, head):
        super().__init__()
        self.features, self.head = features, head

    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


@model
def mobilenet_v2() -> Model:
    """MobileNetV2 1.0, 224 px: 300 M MACs."""
    layers, i = [_conv(3, 32, 3, 2, act=nn.ReLU6())], 32
    for t, c, n, s in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for block in range(n):
            layers.append(InvertedResidual(i, i * t, c, 3, s if block == 0 else 1, nn.ReLU6))
            i = c
    layers.append(_conv(320, 1280, 1, act=nn.ReLU6()))
    head = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))
    return Classifier(nn.Sequential(*layers), head), (_image(224),)


def _mobilenet_v3(table, last, wide) -> nn.Module:
    layers, i = [_conv(3, 16, 3, 2, act=nn.Hardswish())], 16
    for k, expanded, o, excite, act, s in table:
        layers.append(InvertedResidual(i, expanded, o, k, s, act, excite))
        i = o
    layers.append(_conv(i, last, 1, act=nn.Hardswish()))
    head = nn.Sequential(nn.Linear(last, wide), nn.Hardswish(), nn.Linear(wide, 1000))
    return Classifier(nn.Sequential(*layers), head)


@model
def mobilenet_v3_large() -> Model:
    """MobileNetV3-Large 1.0, 224 px: 217 M MACs."""
    r, h = nn.ReLU, nn.Hardswish
    table = (
        (3, 16, 16, False, r, 1),
        (3, 64, 24, False, r, 2),
        (3, 72, 24, False, r, 1),
        (5, 72, 40, True, r, 2),
        (5, 120, 40, True, r, 1),
        (5, 120, 40, True, r, 1),
        (3, 240, 80, False, h, 2),
        (3, 200, 80, False, h, 1),
        (3, 184, 80, False, h, 1),
        (3, 184, 80, False, h, 1),
        (3, 480, 112, True, h, 1),
        (3, 672, 112, True, h, 1),
        (5, 672, 160, True, h, 2),
        (5, 960, 160, True, h, 1),
        (5, 960, 160, True, h, 1),
    )
    return _mobilenet_v3(table, 960, 1280), (_image(224),)


@model
def mobilenet_v3_small() -> Model:
    """MobileNetV3-Small 1.0, 224 px: 56 M MACs."""
    r, h = nn.ReLU, nn.Hardswish
    table = (
        (3, 16, 16, True, r, 2),
        (3, 72, 24, False, r, 2),
        (3, 88, 24, False, r, 1),
        (5, 96, 40, True, h, 2),
        (5, 240, 40, True, h, 1),
        (5, 240, 40, True, h, 1),
        (5, 120, 48, True, h, 1),
        (5, 144, 48, True, h, 1),
        (5, 288, 96, True, h, 2),
        (5, 576, 96, True, h, 1),
        (5, 576, 96, True, h, 1),
    )
    return _mobilenet_v3(table, 576, 1024), (_image(224),)


class BasicBlock(nn.Module):
    def __init__(self, i, o, s):
        super().__init__()
        self.first = _conv(i, o, 3, s, act=nn.ReLU(inplace=True))
        self.second = _conv(o, o, 3)
        self.skip = nn.Identity() if s == 1 and i == o else _conv(i, o, 1, s)

    def forward(self, x):
        return F.relu(self.second(self.first(x)) + self.skip(x), inplace=True)


@model
def resnet18() -> Model:
    """ResNet-18, 224 px: 1.8 G MACs."""
    layers = [_conv(3, 64, 7, 2, act=nn.ReLU(inplace=True)), nn.MaxPool2d(3, 2, 1)]
    i = 64
    for o, s in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [BasicBlock(i, o, s), BasicBlock(o, o, 1)]
        i = o
    return Classifier(nn.Sequential(*layers), nn.Linear(512, 1000)), (_image(224),)


class Fire(nn.Module):
    def __init__(self, i, squeeze, expand):
        super().__init__()
        self.squeeze = nn.Conv2d(i, squeeze, 1)
        self.one = nn.Conv2d(squeeze, expand, 1)
        self.three = nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.one(x)), F.relu(self.three(x))], 1)


@model
def squeezenet1_1() -> Model:
    """SqueezeNet 1.1, 224 px: 350 M MACs; pools round their sizes up."""
    pool = nn.MaxPool2d(3, 2, ceil_mode=True)
    layers = [nn.Conv2d(3, 64, 3, 2), nn.ReLU(), pool, Fire(64, 16, 64), Fire(128, 16, 64), pool]
    layers += [Fire(128, 32, 128), Fire(256, 32, 128), pool, Fire(256, 48, 192)]
    layers += [Fire(384, 48, 192), Fire(384, 64, 256), Fire(512, 64, 256)]
    layers += [nn.Dropout(0.5), nn.Conv2d(512, 1000, 1), nn.ReLU()]
    return Classifier(nn.Sequential(*layers), nn.Identity()), (_image(224),)


@model
def ds_cnn() -> Model:
    """DS-CNN of keyword spotting (MLPerf Tiny): 49x10 MFCCs, 12 words, 2.7 M MACs."""
    layers = [nn.ZeroPad2d((1, 1, 4, 5)), nn.Conv2d(1, 64, (10, 4), 2, bias=False)]
    layers += [nn.BatchNorm2d(64), nn.ReLU()]
    for _ in range(4):
        layers += [_conv(64, 64, 3, groups=64, act=nn.ReLU()), _conv(64, 64, 1, act=nn.ReLU())]
    return Classifier(nn.Sequential(*layers), nn.Linear(64, 12)), (torch.randn(1, 1, 49, 10),)


class Block(nn.Module):
    """A transformer layer, its normalisation before (ViT, GPT) or after (BERT) each half."""

    def __init__(self, d, heads, inner, *, before, eps=1e-6):
        super().__init__()
        self.heads, self.before = heads, before
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, inner), nn.Linear(inner, d)
        self.n1, self.n2 = nn.LayerNorm(d, eps=eps), nn.LayerNorm(d, eps=eps)

    def split(self, x):
        b, n, d = x.shape
        shape = (b, n, 3, self.heads, d // self.heads)
        return self.qkv(x).reshape(shape).permute(2, 0, 3, 1, 4).unbind(0)

    def join(self, y):
        b, h, n, w = y.shape
        return self.out(y.transpose(1, 2).reshape(b, n, h * w))

    def attend(self, x, mask):
        return self.join(F.scaled_dot_product_attention(*self.split(x), attn_mask=mask))

    def feed(self, x):
        return self.down(F.gelu(self.up(x)))

    def forward(self, x, mask=None):
        if self.before:
            x = x + self.attend(self.n1(x), mask)
            return x + self.feed(self.n2(x))
        x = self.n1(x + self.attend(x, mask))
        return self.n2(x + self.feed(x))


class SentenceEncoder(nn.Module):
    """BERT-like encoder, mean over the real tokens, unit length: all-MiniLM-L6."""

    def __init__(self, layers=6, d=384, heads=12, words=30522):
        super().__init__()
        self.words, self.places = nn.Embedding(words, d, padding_idx=0), nn.Embedding(512, d)
        self.kinds, self.norm = nn.Embedding(2, d), nn.LayerNorm(d, eps=1e-12)
        blocks = [Block(d, heads, 4 * d, before=False, eps=1e-12) for _ in range(layers)]
        self.layers = nn.ModuleList(blocks)

    def forward(self, ids, mask):
        places = torch.arange(ids.shape[1]).unsqueeze(0)
        x = self.words(ids) + self.places(places) + self.kinds(torch.zeros_like(ids))
        x = self.norm(x)
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, bias)
        kept = mask.unsqueeze(-1).to(x.dtype)
        mean = (x * kept).sum(1) / kept.sum(1).clamp(min=1e-9)
        return F.normalize(mean, p=2.0, dim=1)


@model
def minilm() -> Model:
    """all-MiniLM-L6 (22.7 M parameters), 64 tokens of which the last 16 are padding."""
    ids, mask = torch.randint(1, 30522, (1, 64)), torch.ones(1, 64, dtype=torch.int64)
    ids[:, 48:], mask[:, 48:] = 0, 0
    return SentenceEncoder(), (ids, mask)


class VisionTransformer(nn.Module):
    def __init__(self, size=224, patch=16, d=192, heads=3, layers=12, classes=1000):
        super().__init__()
        count = (size // patch) ** 2
        self.patches = nn.Conv2d(3, d, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, d) * 0.02)
        self.places = nn.Parameter(torch.randn(1, count + 1, d) * 0.02)
        self.blocks = nn.Sequential(*(Block(d, heads, 4 * d, before=True) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(d, eps=1e-6), nn.Linear(d, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


@model
def vit_tiny() -> Model:
    """ViT-Tiny/16, 224 px: 1.1 G MACs."""
    return VisionTransformer(), (_image(224),)


class SourceTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1000, 256)
        self.encoder = nn.TransformerEncoderLayer(256, 8, batch_first=True)
        self.head = nn.Linear(256, 10)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens)).mean(1))


@model
def encoder_layer() -> Model:
    """Embedding 1000x256, one `nn.TransformerEncoderLayer` of 8 heads, Linear 10; 32 tokens."""
    return SourceTransformer(), (torch.randint(0, 1000, (1, 32)),)


class CachedDecoder(nn.Module):
    """One token a call; keys and values of the tokens before are kept in buffers."""

    def __init__(self, words=256, d=64, heads=4, layers=2, room=16):
        super().__init__()
        self.words, self.places = nn.Embedding(words, d), nn.Embedding(room, d)
        self.blocks = nn.ModuleList(Block(d, heads, 4 * d, before=True) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, words, bias=False)
        self.register_buffer("cache", torch.zeros(layers, 2, 1, heads, room, d // heads))
        self.register_buffer("place", torch.zeros(1, dtype=torch.int64))

    def forward(self, token):
        x = self.words(token) + self.places(self.place)
        seen = (torch.arange(self.cache.shape[4]) <= self.place)[None]
        for index, block in enumerate(self.blocks):
            q, k, v = block.split(block.n1(x))
            self.cache[index, 0].index_copy_(2, self.place, k)
            self.cache[index, 1].index_copy_(2, self.place, v)
            keys, values = self.cache[index, 0], self.cache[index, 1]
            x = x + block.join(F.scaled_dot_product_attention(q, keys, values, attn_mask=seen))
            x = x + block.feed(block.n2(x))
        self.place.add_(1)
        return self.head(self.norm(x))


@model
def gpt_block() -> Model:
    """A two-layer GPT with a KV cache of 16 tokens; three calls differ."""
    return CachedDecoder(), (torch.tensor([[7]]),)


class VoiceDetector(nn.Module):
    """Spectrum by convolution, three convolutions, an LSTM that remembers, a probability."""

    def __init__(self, window=512, bins=64, d=64):
        super().__init__()
        angle = 2 * math.pi * torch.arange(256).float() * torch.arange(bins).float()[:, None] / 256
        basis = torch.cat([angle.cos(), -angle.sin()])[:, None] * torch.hann_window(256)
        self.register_buffer("basis", basis)
        self.convs = nn.Sequential(
            nn.Conv1d(bins, d, 3, 1, 1), nn.ReLU(), nn.Conv1d(d, d, 3, 2, 1), nn.ReLU()
        )
        self.cell, self.head = nn.LSTMCell(d, d), nn.Linear(d, 1)
        self.register_buffer("context", torch.zeros(1, 64))
        self.register_buffer("hidden", torch.zeros(2, 1, d))

    def forward(self, sound):
        whole = torch.cat([self.context, sound], 1)
        self.context.copy_(sound[:, -64:])
        real, imaginary = F.conv1d(whole[:, None], self.basis, stride=128).chunk(2, 1)
        features = self.convs(torch.sqrt(real * real + imaginary * imaginary + 1e-9)).mean(2)
        h, c = self.cell(features, (self.hidden[0], self.hidden[1]))
        self.hidden.copy_(torch.stack([h, c]))
        return torch.sigmoid(self.head(F.relu(h)))


@model
def voice_detector() -> Model:
    """A streaming voice detector: 512 samples a call, its state carried; three calls differ."""
    return VoiceDetector(), (torch.randn(1, 512),)


class Bottlenecks(nn.Module):
    """Split, a chain of residual pairs, all of it joined (C2f of YOLOv8)."""

    def __init__(self, i, o, n, *, residual):
        super().__init__()
        c, self.residual = o // 2, residual
        self.first, self.last = _yolo(i, o, 1), _yolo((2 + n) * c, o, 1)
        pairs = (nn.Sequential(_yolo(c, c, 3), _yolo(c, c, 3)) for _ in range(n))
        self.pairs = nn.ModuleList(pairs)

    def forward(self, x):
        parts = list(self.first(x).chunk(2, 1))
        for pair in self.pairs:
            y = pair(parts[-1])
            parts.append(parts[-1] + y if self.residual else y)
        return self.last(torch.cat(parts, 1))


def _yolo(i: int, o: int, k: int, s: int = 1):
    return _conv(i, o, k, s, act=nn.SiLU())


class Pyramid(nn.Module):
    """Three max pools in a row, joined (SPPF)."""

    def __init__(self, c):
        super().__init__()
        self.first, self.last = _yolo(c, c // 2, 1), _yolo(c * 2, c, 1)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x):
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Detector(nn.Module):
    """YOLOv8-n: backbone, neck with upsampling, boxes as expectations over 16 bins, scores."""

    def __init__(self, classes=80, bins=16):
        super().__init__()
        c1, c2, c3, c4, c5 = 16, 32, 64, 128, 256
        self.bins = bins
        self.to3 = nn.Sequential(
            _yolo(3, c1, 3, 2),
            _yolo(c1, c2, 3, 2),
            Bottlenecks(c2, c2, 1, residual=True),
            _yolo(c2, c3, 3, 2),
            Bottlenecks(c3, c3, 2, residual=True),
        )
        self.to4 = nn.Sequential(_yolo(c3, c4, 3, 2), Bottlenecks(c4, c4, 2, residual=True))
        self.to5 = nn.Sequential(
            _yolo(c4, c5, 3, 2), Bottlenecks(c5, c5, 1, residual=True), Pyramid(c5)
        )
        self.up4 = Bottlenecks(c5 + c4, c4, 1, residual=False)
        self.up3 = Bottlenecks(c4 + c3, c3, 1, residual=False)
        self.down4, self.mix4 = _yolo(c3, c3, 3, 2), Bottlenecks(c3 + c4, c4, 1, residual=False)
        self.down5, self.mix5 = _yolo(c4, c4, 3, 2), Bottlenecks(c4 + c5, c5, 1, residual=False)
        widths = (c3, c4, c5)
        self.boxes = nn.ModuleList(self._head(c, 64, 4 * bins) for c in widths)
        self.scores = nn.ModuleList(self._head(c, 80, classes) for c in widths)

    def _head(self, i, c, o):
        return nn.Sequential(_yolo(i, c, 3), _yolo(c, c, 3), nn.Conv2d(c, o, 1))

    def forward(self, x):
        p3 = self.to3(x)
        p4 = self.to4(p3)
        p5 = self.to5(p4)
        up = self.up4(torch.cat([F.interpolate(p5, scale_factor=2.0, mode="nearest"), p4], 1))
        n3 = self.up3(torch.cat([F.interpolate(up, scale_factor=2.0, mode="nearest"), p3], 1))
        n4 = self.mix4(torch.cat([self.down4(n3), up], 1))
        n5 = self.mix5(torch.cat([self.down5(n4), p5], 1))
        boxes, scores = [], []
        for level, (y, stride) in enumerate(((n3, 8), (n4, 16), (n5, 32))):
            boxes.append(self._decode(self.boxes[level](y), stride))
            scores.append(self.scores[level](y).flatten(2))
        return torch.cat(boxes, 2), torch.cat(scores, 2).sigmoid()

    def _decode(self, raw, stride):
        b, _, h, w = raw.shape
        bins = raw.view(b, 4, self.bins, h * w).softmax(2)
        sides = (bins * torch.arange(self.bins).float().view(1, 1, -1, 1)).sum(2)
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        centres = torch.stack([columns, rows]).flatten(1).float() + 0.5
        return torch.cat([centres - sides[:, :2], centres + sides[:, 2:]], 1) * stride


@model
def yolo_n() -> Model:
    """YOLOv8-n at 320 px: 1.1 G MACs, boxes and scores of 2100 places."""
    return Detector(), (_image(320),)
