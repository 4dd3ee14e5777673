"""The scripted conversations and readings that the pictures show."""

from __future__ import annotations

import math
import random

from app.monitors.side_figures import SideGpu, SideNode
from app.monitors.side_panel import SideFigures
from app.store.rows import Figures, MessageRow, Status
from engine.api.values import CpuSample, HardwareSnapshot

GB = 1_000_000_000
QUESTION = "How should I place a 671B MoE on two 24 GB cards and dual EPYC? 顺便用中文总结一下。"
ANSWER = """<think>
The routed experts are by far the largest part and only eight of 256 are read per token, so they can live in memory.
</think>

Keep everything that runs for **every token** on the GPUs and stream only the routed experts from RAM. \
Decode is bound by bytes moved per token, so the split follows bandwidth:

| Part | Device | Bytes / token | Bound by |
|---|---|---|---|
| Attention + KV, 61 layers | GPU 0, GPU 1 | 9.6 GB | VRAM, 1,008 GB/s |
| Shared FFN, router | GPU 1 | 2.2 GB | VRAM, 936 GB/s |
| Routed experts (8 of 256) | NUMA 0, NUMA 1 | 11.5 GB | RAM, 204 GB/s |

Pin each expert to the node whose threads read it, or half of the traffic crosses the socket link:

```python
def place(layer: int, kind: str) -> str:
    if kind in ("attn", "kv"):
        return f"cuda:{layer % 2}"
    return f"numa:{layer % 2}"   # 专家放在本地内存节点
```

"""
SUMMARY = (
    "**中文总结：**注意力与 KV 缓存放显存，路由专家按层交替绑定到两个 NUM"
    "A 节点；瓶颈是内存带宽，预计每秒十二个词元，比全部放内存快"
)
MATH = """The time per token is the sum over devices of bytes read over bandwidth:

$$t = \\sum_{i=1}^{n} \\frac{b_i}{B_i} + \\max_j \\lambda_j$$

### What follows

1. **Bandwidth first.** With $b = 11.5$ GB and $B = 204$ GB/s the experts alone take \\(56\\) ms.
2. **Then latency.** Each hop adds a little; `numa:0` and `numa:1` run side by side.
   - a nested point with *emphasis*
   - another one, with ~~a mistake~~

> Measure before you move anything: a quiet link costs nothing.

The attention itself is

$$\\mathrm{softmax}\\left(\\frac{QK^\\top}{\\sqrt{d_k}}\\right)V$$

![diagram](https://example.org/placement.png)

See the [documentation](https://example.org/docs) for details.
"""
CHATS = (
    ("Today", ("Offload plan for 671B", "为什么预填充这么慢？", "NUMA interleave vs bind", "Rust FFI lifetimes")),
    ("Yesterday", ("Translate release notes 中→英", "SQL window functions", "KV cache quantisation")),
    ("Last 7 days", ("EPYC BIOS: NPS4 or NPS1", "写一个贪吃蛇游戏", "Compare Q4_K_M and Q5_K_M")),
)


def message(i: int, role: str, text: str, status: Status = "done", **extra: object) -> MessageRow:
    """A row of the scripted conversation."""
    parent = i - 1 if i > 1 else None
    return MessageRow(i, 1, parent, "user" if role == "user" else "assistant", text, status, 0.0, **extra)  # type: ignore[arg-type]


def streaming() -> tuple[MessageRow, ...]:
    """The conversation of the reference picture, while the answer is being written."""
    figures = Figures(412, 600, 12.1, 212.0, 2.9)
    return (message(1, "user", QUESTION), message(2, "assistant", ANSWER + SUMMARY, "streaming", figures=figures))


def long_answer() -> tuple[MessageRow, ...]:
    """Formulas, lists, a quote, an image that is not loaded."""
    figures = Figures(286, 640, 12.4, 208.0, 1.1)
    return (
        message(1, "user", "What bounds the time per token?"),
        message(2, "assistant", MATH, figures=figures, position=(1, 3)),
    )


def ended_badly() -> tuple[MessageRow, ...]:
    """Stopped, interrupted and failed answers."""
    cause = "The context is full: 8,192 of 8,192 tokens are used. Start a new chat, or load the model with a longer context."
    return (
        message(1, "user", "Summarise the design document."),
        message(
            2, "assistant", "The document has three parts. The first one", "stopped", figures=Figures(11, 420, 38.2, 640.0, 0.7)
        ),
        message(3, "user", "Go on."),
        message(
            4,
            "assistant",
            "describes the engine: it reads a GGUF file, builds a plan",
            "interrupted",
            figures=Figures(14, 455, 37.9),
        ),
        message(5, "user", "And the rest?"),
        message(6, "assistant", "", "error", error=cause),
    )


def prefill() -> tuple[MessageRow, ...]:
    """An answer whose prompt is still being read."""
    return (message(1, "user", "Here is the whole log. What went wrong first?"), message(2, "assistant", "", "streaming"))


def walk(n: int, base: float, amplitude: float, seed: int) -> list[float]:
    """A random walk around `base`: the same each time."""
    rng = random.Random(seed)
    value, result = base, []
    for _ in range(n):
        value += rng.uniform(-amplitude, amplitude) + (base - value) * 0.15
        result.append(max(0.0, value))
    return result


def snapshot() -> HardwareSnapshot:
    """One reading of a busy 32-core machine."""
    rng = random.Random(4)
    use = tuple(100 * min(1.0, max(0.05, rng.gauss(0.62 if i < 28 else 0.12, 0.13))) for i in range(32))
    return HardwareSnapshot(0.0, CpuSample("EPYC 7543 32-Core", use, 58.0), 184 * GB, 256 * GB, 173 * GB, 1400 * GB)


def side_figures(hybrid: bool = False) -> SideFigures:
    """The panel beside the chat: one processor, or, as in the reference picture, two cards and two nodes."""
    if not hybrid:
        return SideFigures(
            nodes=(
                SideNode(
                    "EPYC 7543 32-Core",
                    "58 °C",
                    "text",
                    snapshot().cpu.use_percent,
                    "55 %",
                    "",
                    "184 / 256 GB",
                    ((0.68, "attn"), (0.04, "buffers")),
                ),
            )
        )
    memory = ((0.2, "attn"), (0.09, "ffn"), (0.26, "experts"), (0.11, "kv"), (0.08, "buffers"))
    gpus = (
        SideGpu("a", "GPU 0 · RTX 4090", "58 °C", "text", 34.0, "141 W", "17.8 / 24 GB", memory),
        SideGpu("b", "GPU 1 · RTX 3090", "83 °C", "warn", 38.0, "168 W", "17.9 / 24 GB", memory, "RTX 3090: 83 °C"),
    )
    nodes = (
        SideNode(
            "NUMA 0 · EPYC 7543",
            "58 °C",
            "text",
            snapshot().cpu.use_percent,
            "55 %",
            "172 GB/s",
            "184 / 256 GB",
            ((0.72, "attn"),),
        ),
        SideNode(
            "NUMA 1 · EPYC 7543",
            "61 °C",
            "text",
            snapshot().cpu.use_percent[::-1],
            "55 %",
            "168 GB/s",
            "183 / 256 GB",
            ((0.71, "attn"),),
        ),
    )
    return SideFigures(gpus, nodes)


def decode_rates() -> list[float]:
    """A minute of decode speeds that ends at 12.1."""
    return [*(value - 0.55 for value in walk(59, 12.0, 0.4, 3)), 12.1]


def long_history(n: int) -> tuple[MessageRow, ...]:
    """n messages with text of changing length."""
    lines = "A line of the answer that is long enough to wrap in the column, with `code` and **weight**. "
    rows = []
    for i in range(1, n + 1):
        if i % 2:
            rows.append(message(i, "user", f"Question {i // 2 + 1}: how much does it cost?"))
        else:
            rows.append(
                message(
                    i,
                    "assistant",
                    lines * (1 + int(4 * abs(math.sin(i)))) + "\n\nAnd a second paragraph.",
                    figures=Figures(80, 40, 37.0),
                )
            )
    return tuple(rows)
