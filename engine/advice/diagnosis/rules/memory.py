"""The machine's memory and that of cards: swap, weights from the disk, pressure, and cards that run full."""

from __future__ import annotations

from engine.advice.diagnosis.finding import Action
from engine.advice.diagnosis.remedies import shorter_context
from engine.advice.diagnosis.rule import Said
from engine.advice.diagnosis.window import Window, bytes_text, rate_text, spoken
from engine.api.values import GpuSample, HardwareSnapshot

SWAP_BYTES_PER_S = 256e3
"""A page now and then is the system tidying up."""
SWAP_GROWTH = 16 << 20
"""Of what this process has in swap, within the window."""
FAULTS_PER_S = 5.0
DISK_BYTES_PER_S = 20e6
"""Together they tell weights from a log that is written: a fault brings 4 KiB to 128 KiB."""
FAULTING_READINGS = 3
"""What was dropped once comes back in one, however much it is: the mean alone would tell that for the whole window."""
PRESSURE_PERCENT = 5.0
ROOM_BYTES = 700e6
"""A card's driver, its display and one more buffer of ours need so much."""
FOREIGN_GROWTH = 300e6
"""A browser's tab takes tens of MB, which changes nothing."""
SOON_TOKENS = 100_000
REFUSED_S = 60.0


def swap(window: Window) -> Said | None:
    """The machine brings memory back from swap, or writes this process's out."""
    coming = window.mean(lambda one: one.memory.swap_in_bytes_per_s)
    mine = [one.snapshot.memory.process_swap_bytes for one in window.readings]
    known = [one for one in mine if one is not None]
    grown = known[-1] - known[0] if len(known) > 1 else 0
    if window.facts.info is None or ((coming or 0.0) < SWAP_BYTES_PER_S and grown < SWAP_GROWTH):
        return None
    if (coming or 0.0) >= SWAP_BYTES_PER_S and not (known and known[-1]):
        return None  # other programs' memory: it is theirs that comes back
    memory = window.readings[-1].snapshot.memory
    in_swap = known[-1] if known else memory.swap_used_bytes or 0
    what = f"({rate_text(coming)})" if coming else f"({bytes_text(grown)} more of it within {len(window.readings)} s)"
    other = "move layers to a GPU" if _has_cards(window) else "use a smaller model"
    return Said(
        f"Reading model data from swap {what}. Free {bytes_text(in_swap)} of memory, or {other}.",
        f"{bytes_text(in_swap)} of this program lie in swap; a disk gives a hundredth of what memory does",
        _free_memory(window, in_swap),
    )


def _has_cards(window: Window) -> bool:
    return window.newest is not None and bool(window.newest.gpus)


def _free_memory(window: Window, nbytes: int) -> Action:
    """Memory becomes free where layers go to a card; without one that has room, by a model that takes less."""
    node = window.nodes[0] if window.nodes else "numa0"
    other = Action("model", "Choose a smaller model")
    return (
        Action("relieve", "Move layers to a GPU", node, nbytes=max(nbytes, 1), otherwise=other) if _has_cards(window) else other
    )


def disk(window: Window) -> Said | None:
    """While tokens are decoded, weights come from the disk: the file does not stay in memory."""
    if not (window.decoding or _is_stuck(window)) or _is_first_answer(window):
        return None
    faults = window.mean(lambda one: one.memory.process_major_faults_per_s)
    rate = window.mean(lambda one: one.disk.process_read_bytes_per_s)
    if faults is None or rate is None or faults <= FAULTS_PER_S or rate <= DISK_BYTES_PER_S:
        return None
    if sum(_is_faulting(one.snapshot) for one in window.readings) < FAULTING_READINGS:
        return None
    snapshot = window.readings[-1].snapshot
    ceiling = snapshot.disk.ceiling_bytes_per_s
    of = f" of {rate_text(ceiling)} seen" if ceiling and ceiling > rate else ""
    return Said(
        f"Weights are coming from the disk ({rate_text(rate)}{of}){_too_small(window)}.",
        f"{faults:.0f} page faults a second wait for the disk while tokens are decoded",
        _free_memory(window, _lacking(window)),
    )


def _is_faulting(snapshot: HardwareSnapshot) -> bool:
    return (snapshot.memory.process_major_faults_per_s or 0.0) > FAULTS_PER_S


def _too_small(window: Window) -> str:
    """By how much memory is too small for what is mapped of the file, where that is the reason."""
    info, left = window.facts.info, window.readings[-1].snapshot.memory.available_bytes
    if info is None or left is None:
        return ""
    lacks = _lacking(window)
    return f": memory is {bytes_text(lacks)} too small for this plan" if lacks > 0 else ": they do not stay in memory"


def _lacking(window: Window) -> int:
    """Bytes by which memory is too small for what is mapped of the file, 0 where it is large enough for that."""
    info, snapshot = window.facts.info, window.readings[-1].snapshot
    mapped = 0 if info is None else sum(one.nbytes for one in info.holdings if one.mapped)
    return max(0, mapped - (snapshot.memory.limit_bytes or snapshot.ram_total_bytes))


def _is_stuck(window: Window) -> bool:
    """A step outlasts the readings."""
    return bool(window.works) and all(one.n_answers and not one.prompt_tokens for one in window.works)


def _is_first_answer(window: Window) -> bool:
    """The first answer after loading warms the caches, which R-COLD tells; of a model that memory can hold."""
    info, snapshot = window.facts.info, window.readings[-1].snapshot
    if info is None or window.facts.n_answers:
        return False
    mapped = sum(one.nbytes for one in info.holdings if one.mapped)
    return mapped <= (snapshot.memory.limit_bytes or snapshot.ram_total_bytes)


def pressure(window: Window) -> Said | None:
    """Everything stood still for want of memory."""
    full = window.readings[-1].snapshot.pressure.memory_full_percent
    if full is None or full <= PRESSURE_PERCENT:
        return None
    return Said(
        "The whole computer is short of memory.",
        f"for {full:.0f} % of the last 10 s everything waited for memory (pressure measured by the kernel)",
    )


def card_full(window: Window) -> Said | None:
    """A card that the model uses has little memory left."""
    for device in _used_cards(window):
        gpu = window.card(device)
        if gpu is None or gpu.memory_free_bytes is None or gpu.memory_free_bytes >= ROOM_BYTES:
            continue
        pace = _filling(window, gpu)
        left = f"; at this pace it is full in about {pace:,} tokens" if pace is not None else ""
        return Said(
            f"{spoken(device)} has {bytes_text(gpu.memory_free_bytes)} left{left}.",
            f"{bytes_text(gpu.memory_used_bytes or 0)} of {bytes_text(gpu.memory_total_bytes or 0)} are taken; the driver, "
            f"a display and buffers want {bytes_text(ROOM_BYTES)}",
            _make_room(window, device, gpu),
            device,
        )
    return None


def _make_room(window: Window, device: str, gpu: GpuSample) -> Action:
    """So much must leave a card that it has ROOM_BYTES again; else a shorter context."""
    lacks = int(ROOM_BYTES) - (gpu.memory_free_bytes or 0)
    return Action("make room", "Make room", device, nbytes=lacks, otherwise=shorter_context(window, device, lacks))


def _filling(window: Window, gpu: GpuSample) -> int | None:
    """Tokens until the card is full, where its use grows with the tokens; None: it does not."""
    history, works = window.history(gpu.key), window.decoding
    if len(history) < 2 or not works or history[-1].memory_free_bytes is None or history[0].memory_free_bytes is None:
        return None
    grown = history[0].memory_free_bytes - history[-1].memory_free_bytes
    tokens = sum(one.n_decoded for one in works)
    if grown <= 0 or not tokens:
        return None
    found = int(history[-1].memory_free_bytes * tokens / grown)
    return max(100, round(found, -2)) if found < SOON_TOKENS else None


def card_foreign(window: Window) -> Said | None:
    """Another program has taken memory of a card that the model uses, since it was loaded."""
    for device in _used_cards(window):
        gpu = window.card(device)
        before = None if gpu is None else window.facts.foreign_bytes.get(gpu.key)
        if gpu is None or before is None:
            continue
        now = foreign_bytes(window, device, gpu)
        if now is None or now - before <= FOREIGN_GROWTH:
            continue
        names = _foreign_names(gpu)
        who = f" ({names})" if names else ""
        return Said(
            f"Another program took {bytes_text(now - before)} on {spoken(device)}{who}.",
            f"others hold {bytes_text(now)} of it now, and held {bytes_text(before)} when the model was loaded",
            _make_room(window, device, gpu)
            if gpu.memory_free_bytes is not None and gpu.memory_free_bytes < ROOM_BYTES
            else Action("doctor", "Show who holds it", device, "D-GPU-4"),
            device,
        )
    return None


def foreign_bytes(window: Window, device: str, gpu: GpuSample) -> int | None:
    """What is taken of a card beside what the model holds; None where either is not told."""
    info = window.facts.info
    if info is None or gpu.memory_used_bytes is None:
        return None
    return gpu.memory_used_bytes - sum(one.nbytes for one in info.holdings if one.device == device)


def _foreign_names(gpu: GpuSample) -> str:
    mine = sorted(gpu.processes or (), key=lambda one: -(one.memory_bytes or 0))
    return ", ".join(
        dict.fromkeys(one.name for one in mine if one.name and "layerdeck" not in one.name and "python" not in one.name)
    )


def _used_cards(window: Window) -> tuple[str, ...]:
    """Cards on which the model lies."""
    info = window.facts.info
    return () if info is None else tuple(one.device for one in info.devices if one.device.startswith("gpu"))


def fragmented(window: Window) -> Said | None:
    """A card refused memory that it had: in pieces."""
    fact = window.facts.refused
    if fact is None or window.now_s - fact.time_s > REFUSED_S or fact.free < fact.asked:
        return None
    return Said(
        f"The memory of {spoken(fact.device)} is fragmented. Load the model again to use it whole.",
        f"{bytes_text(fact.asked)} were asked for, {bytes_text(fact.free)} were free, and not in one piece",
        Action("load again", "Load it again", fact.device),
        fact.device,
    )
