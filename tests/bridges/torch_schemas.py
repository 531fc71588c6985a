"""The overloads of operations of ATen that take and give tensors."""

from __future__ import annotations

from typing import Any


def overloads_of(name: str) -> list[Any]:
    """Those that PyTorch's tracers can meet: no variants for TorchScript, whose operands are not tensors."""
    import torch

    packet = getattr(torch.ops.aten, name)
    found = []
    for overload in packet.overloads():
        operation = getattr(packet, overload)
        is_traced = "hacked_twin" not in overload and "Dict" not in str(operation._schema)
        if is_traced and any("Tensor" in str(r.type) for r in operation._schema.returns):
            found.append(operation)
    return found
