"""What only others know and a check may use: of the model, of the program around the engine, of probes. All of it optional."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

NodePolicy = Literal["split", "interleave", "single", "mapped", "first touch", ""]
"""How weights come to lie on nodes; "" where nobody says. `mapped` and `first touch`: wherever they were read first."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model that is loaded, or one that somebody wants to load.

    cpu_bytes: of weights, cache and buffers in the machine's memory. mapped: its file is mapped, not copied. gpu_bytes: (key of a
    GpuSample, bytes). n_workers: threads that compute, 0: not told; tuned: that number came out best when several were tried.
    node_pages: (node, sampled pages of its weights there). placed: share of them on the node that was wanted, 0..1.
    denied: why the system refused to place memory, or "". locked: its owner asked for memory that is never swapped.
    sha256: what its source says that the file's is. has_template: whether chats need the template in the file.
    """

    path: Path
    is_loaded: bool = False
    cpu_bytes: int = 0
    mapped: bool = False
    gpu_bytes: tuple[tuple[str, int], ...] = ()
    n_workers: int = 0
    tuned: bool = False
    node_policy: NodePolicy = ""
    node_pages: tuple[tuple[int, int], ...] = ()
    placed: float | None = None
    denied: str = ""
    locked: bool = False
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class AppFacts:
    """The program around the engine. data_folder: of chats and settings. model_folders: where models are looked for.

    listener: address that others are served at, `127.0.0.1:8000`, "" where nobody is; has_key: whether they need one.
    """

    data_folder: Path | None = None
    model_folders: tuple[Path, ...] = ()
    listener: str = ""
    has_key: bool = False


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """Whether cards write into each other's memory, proven by copies that were compared: a sentence for each pair that does not.

    lost: what was written did not arrive. apart: the driver gives no access, as for most desktop cards.
    """

    n_pairs: int
    lost: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LinkRate:
    """A copy to a card that took seconds. key: of its GpuSample. generation, width: of its link in the middle of that copy."""

    key: str
    gbps: float
    generation: int | None = None
    width: int | None = None


@dataclass(frozen=True, slots=True)
class TorchFacts:
    """What the installed torch was built for. cuda: `12.8`, "" for a build without. archs: `sm_90`, `compute_90`.

    capabilities: (name of a card, `9.0`) of those it sees. problem: why it cannot be asked, or "".
    """

    cuda: str = ""
    archs: tuple[str, ...] = ()
    capabilities: tuple[tuple[str, str], ...] = ()
    problem: str = ""
