"""What is quantized, where the pairs stand, and that weights are rounded well."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edgectl.errors import UnsupportedModelError
from edgectl.quantization import quantize
from edgectl.quantization.prepare import prepare
from support.quantized_models import exported, operators, samples_like

QUANTIZE = "quantized_decomposed.quantize_per_tensor"
DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor"


def warm(module):
    for m in module.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            m.running_mean.uniform_(-0.5, 0.5)
            m.running_var.uniform_(0.5, 2.0)
            nn.init.uniform_(m.weight, 0.5, 1.5)
            nn.init.uniform_(m.bias, -0.3, 0.3)
    return module.eval()


def quantized(module, inputs, **options):
    return quantize(exported(module, inputs), "int8", samples_like(inputs), **options)


class CalledTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.other = nn.BatchNorm2d(4)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)))
        return self.other(self.conv(x)) + self.norm(self.conv(x))


def test_preparing_changes_no_value_when_a_module_is_called_three_times():
    torch.manual_seed(0)
    module, x = warm(CalledTwice()), torch.randn(2, 4, 9, 9)
    graph = prepare(torch.export.export(module, (x,)))
    assert not any("batch_norm" in str(n.target) for n in graph.graph.nodes)
    with torch.no_grad():
        torch.testing.assert_close(graph(x), module(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 4, 3)),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.ReLU()),
        nn.Sequential(nn.Conv2d(3, 4, (2, 4), padding="same", dilation=2)),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1)),
    ],
)
def test_preparing_changes_no_value(module):
    torch.manual_seed(0)
    module, x = warm(module), torch.randn(2, 3, 9, 9)
    graph = prepare(torch.export.export(module, (x,)))
    with torch.no_grad():
        torch.testing.assert_close(graph(x), module(x), atol=1e-5, rtol=1e-5)


def test_nothing_is_quantized_between_a_convolution_and_its_relu6():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU6(), nn.Conv2d(4, 2, 1))
    names = operators(quantized(module, (torch.randn(1, 3, 8, 8),)).model.program)
    place = names.index("aten.conv2d")
    assert names[place + 1] == "aten.hardtanh"
    assert names[place + 2] == QUANTIZE


def test_max_pool_and_reshape_keep_the_scale_of_their_input():
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 3 * 3, 2)
    )
    program = quantized(module, (torch.randn(1, 3, 8, 8),)).model.program
    scales = [n.args[1:3] for n in program.graph.nodes if QUANTIZE in str(n.target)]
    assert len(scales) == 4
    assert len(set(scales[1:])) == 1


def test_the_weight_of_a_module_called_twice_is_stored_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 64)

        def forward(self, x):
            return self.layer(F.relu(self.layer(x)))

    torch.manual_seed(0)
    result = quantized(Twice(), (torch.randn(1, 64),))
    weights = [v for v in result.model.program.state_dict.values() if v.dtype == torch.int8] + [
        v
        for v in result.model.program.constants.values()
        if isinstance(v, torch.Tensor) and v.dtype == torch.int8
    ]
    assert len(weights) == 1


def test_a_large_bias_on_a_dead_channel_survives():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(), nn.Conv2d(2, 1, 1))
    with torch.no_grad():
        module[0].weight[1] = 0.0
        module[0].bias[1] = 20.0
    report = quantized(module, (torch.randn(1, 3, 6, 6),)).report
    assert report["against_float"]["sqnr_db"] > 35


def test_adaptive_rounding_beats_rounding_to_nearest_on_correlated_inputs():
    gains = []
    for seed in range(3):
        torch.manual_seed(seed)
        # Weights of few levels, so that their error and not the activations' is what one sees.
        module = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16))
        with torch.no_grad():
            module[0].weight[:, 0] = 8.0
        mixing = torch.randn(4, 64)
        mixing[:, 0] = 0.01
        data = [torch.randn(8, 4) @ mixing for _ in range(64)]
        held_out = [torch.randn(8, 4) @ mixing for _ in range(16)]
        model = exported(module, (data[0],))
        plain, adaptive = (
            quantize(
                model, "int8", data, evaluation=held_out, correct_bias=False, adaptive_rounding=on
            ).report["against_float"]["sqnr_db"]
            for on in (False, True)
        )
        gains.append(adaptive - plain)
    assert min(gains) > 3.0


def test_modules_kept_in_float_stay_float_and_are_reported():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    report = quantized(module, (torch.randn(1, 8),), keep_float=("2",)).report
    assert report["integer_macs_share"] == 0.5
    assert [e["module"] for e in report["layers"] if not e["integer"]] == ["2"]


def test_requiring_all_integer_names_the_float_layers():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv3d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 27, 4))
    inputs = (torch.randn(1, 1, 5, 5, 5),)
    with pytest.raises(UnsupportedModelError) as caught:
        quantized(module, inputs, require_int8=1.0)
    assert "conv3d" in (caught.value.cause or "")


def test_a_budget_keeps_the_worst_layers_float_and_holds():
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16)
    )
    inputs = (torch.randn(4, 16),)
    plain = quantized(module, inputs)
    wanted = plain.report["against_float"]["mean_sqnr_db"] + 4
    result = quantized(module, inputs, min_sqnr=wanted)
    assert result.report["against_float"]["mean_sqnr_db"] >= wanted
    assert 0 < result.report["integer_macs_share"] < 1
    assert result.report["costs"]


def test_giving_nothing_back_returns_the_list_that_was_measured():
    from edgectl.quantization.budget import _give_back

    kept = ("small", "large", "middle")
    macs = {"small": 1, "middle": 5, "large": 9}
    assert _give_back(kept, macs, lambda names: False) == kept
    assert _give_back(kept, macs, lambda names: "small" in names) == ("small",)
