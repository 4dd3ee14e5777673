"""Compiles the assembly form of the flag kernels for cards that need not be there.

python -m tests.helpers.compile_handoff 80 90
"""

from __future__ import annotations

import sys
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from engine.triton_kernels import handoff


def _type(name: str) -> str:
    if name in ("stamps", "began"):
        return "*i64"
    pointer = name in ("words", "counter", "arrivals") or (name[0] in "st" and name[1:].isdigit())
    return "*i32" if pointer else "i32"


def compiled(kernel: Any, capability: int, **constants: int) -> Any:
    """A kernel for one compute capability, down to machine code."""
    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else _type(name) for name in names}
    source = ASTSource(kernel, signature, {(names.index(name),): value for name, value in constants.items()})
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 8})


def main(capabilities: list[int]) -> None:
    """Prints the sizes of what came out."""
    common = {"LINE": handoff.LINE, "BLOCK": 2048, "ASM": True}
    for capability in capabilities:
        begin = compiled(handoff._begin, capability, ASM=True)
        assert "globaltimer" in begin.asm["ptx"]
        for n in (0, handoff.MAX_BUFFERS):
            send = compiled(handoff._send, capability, N=n, **common)
            take = compiled(handoff._take, capability, N=n, FAR=handoff.FAR, **common)
            assert "st.release.sys" in send.asm["ptx"] and "ld.acquire.sys" in take.asm["ptx"]
            print(capability, n, len(send.asm["cubin"]), len(take.asm["cubin"]))


if __name__ == "__main__":
    main([int(one) for one in sys.argv[1:]])
