"""Models quantized by torchao's PT2E flow, as users bring them."""

from __future__ import annotations

import torch

from edgectl.graph import quiet


def pt2e(module, inputs, *, qat):
    """The module, quantized with the stock XNNPACK quantizer on four random inputs."""
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import (
        convert_pt2e,
        prepare_pt2e,
        prepare_qat_pt2e,
    )
    from torchao.testing.pt2e._xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    with quiet():
        config = get_symmetric_quantization_config(is_per_channel=True, is_qat=qat)
        graph = torch.export.export(module, inputs).module()
        prepare = prepare_qat_pt2e if qat else prepare_pt2e
        prepared = prepare(graph, XNNPACKQuantizer().set_global(config))
        for _ in range(4):
            prepared(*(torch.randn_like(t) for t in inputs))
        if qat:
            move_exported_model_to_eval(prepared)
        return convert_pt2e(prepared)
