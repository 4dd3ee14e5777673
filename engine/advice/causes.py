"""Where walks through symptoms end: the cause in a sentence, what to do in the order to try it, claims that are answered.
Data only.

What the field reports claim and is wrong is quoted as something one may have read, with what is right; it is never among `todo`.
"""

from __future__ import annotations

from engine.advice.symptom_walk import Cause, Link, Myth

PLACE = Link("placement", "Open the placement editor")
CONTEXT = Link("context", "Plan the context")
RELOAD = Link("reload", "Load the model again")
MONITORS = Link("monitors", "Watch the monitors")
SAMPLING = Link("sampling", "Open the sampling of this chat")
ENGINE = Link("settings", "Open the settings of the engine")
CALIBRATE = Link("calibrate", "Measure this machine")


def row(check: str, text: str) -> Link:
    """A link to a row of the doctor."""
    return Link("check", text, check)


CRASHES = (
    Cause(
        "crash.memory",
        "The system ran out of memory and ended the program to save itself.",
        (
            "Close other programs that hold much memory, or choose a smaller model or context.",
            "Move layers from the machine's memory to a GPU that has room.",
        ),
        (row("D-SYS-5", "Show what the system ended"), row("D-MEM-1", "Show what the model needs"), PLACE),
    ),
    Cause(
        "crash.isa",
        "The processor, or the virtual machine around it, lacks an instruction that a program used.",
        (
            "In a virtual machine pass the host's processor through (CPU type host).",
            "Run `layerdeck selftest`: it names the kernels that this processor can run.",
        ),
        (row("D-CPU-1", "Show the processor's instructions"),),
        (
            Myth(
                "newer versions of Linux (glibc 2.39, Ubuntu 24.04) make AVX2 programs crash",
                "They do not: AVX2 code does not depend on the version of glibc, and there is no need to go back to "
                "an older system.",
            ),
        ),
    ),
    Cause(
        "crash.file",
        "The model file is damaged, incomplete or was changed while it was in use.",
        (
            "Download the file again and compare its size with the one that the source names.",
            "Keep the file unchanged while it is loaded: replace it under another name.",
        ),
        (row("D-FIL-1", "Show what is wrong with the file"), RELOAD),
    ),
    Cause(
        "crash.gpu",
        "A GPU stopped answering: its driver reports an error of the card, of its power supply or of the link.",
        (
            "Check the power cables of the card and its seat in the slot.",
            "Restart the computer: a card that dropped off the bus does not come back by itself.",
            "If it happens again under load, lower the card's power limit a little and look for an update of the "
            "board's firmware.",
        ),
        (row("D-GPU-8", "Show the errors of the driver"), row("D-PCI-3", "Show the errors of the link"), MONITORS),
        (
            Myth(
                "a card can be brought back by resetting it from the command line",
                "A reset ends every program on that card, is refused while one runs, and can take the display with it. "
                "A restart of the computer is the safe way.",
            ),
        ),
    ),
    Cause(
        "crash.fault",
        "Layerdeck, or a library that it loads, has a fault; the report of the crash names the place.",
        (
            "Copy the details from the crash dialog, or take layerdeck.log, and report them with the report of this page.",
            "Start with LAYERDECK_GPU=none: if it runs on the CPU alone, the GPU's driver is involved.",
            "Run `layerdeck selftest`, which compares every kernel with its plain form.",
        ),
        (row("D-GPU-1", "Show the GPU's driver"),),
        (
            Myth(
                "OMP_NUM_THREADS=1 cures a segmentation fault, because it aligns memory for AVX2",
                "The number of threads moves nothing in memory. Layerdeck's kernels do not use OpenMP, and every "
                "buffer they read with aligned instructions is made for that.",
            ),
            Myth(
                "only one exact version of the GPU's driver or of the CUDA toolkit works, as others break AVX2",
                "A GPU's driver and compiler have no part in code for the CPU. Newer drivers are fine; only too old "
                "ones are not.",
            ),
        ),
    ),
)

MEMORY = (
    Cause(
        "vram.plan",
        "What was to be loaded does not fit beside what the card holds already.",
        (
            "Let the placement editor fix it: it moves the layers that cost least speed to the machine's memory.",
            "Or choose a smaller context, or 8 bits for its cache.",
        ),
        (PLACE, CONTEXT),
        (
            Myth(
                "the cache of 16,000 tokens takes 12 GB on each card",
                "What a cache takes depends on the model: many newer ones need less than 1 GB for that. The editor "
                "computes it from the file.",
            ),
        ),
    ),
    Cause(
        "vram.cache",
        "The conversation fills its cache, which grows with every token; that is no leak.",
        (
            "Trim the oldest messages, or begin a new chat.",
            "Choose 8 bits for the cache, which halves it, or plan another context and see what has to move for it.",
        ),
        (CONTEXT, ENGINE),
    ),
    Cause(
        "vram.others",
        "Another program holds memory of the card.",
        (
            "Close it: browsers, games and other engines are the usual ones.",
            "Or move a layer away from the card that drives the screen.",
        ),
        (row("D-GPU-4", "Show who holds the card's memory"), row("D-SYS-2", "Show other engines"), PLACE),
        (
            Myth(
                "nvidia-persistenced holds memory or bandwidth and should be ended, or the card reset before each start",
                "The daemon only keeps the driver awake, so that programs start faster; it costs neither. A reset "
                "ends every program on the card.",
            ),
        ),
    ),
    Cause(
        "vram.fragments",
        "The card's memory is free, but in pieces that are too small.",
        ("Load the model again: everything is put down anew, without gaps.",),
        (RELOAD,),
    ),
    Cause(
        "vram.grows",
        "What the model holds grows without a reason that is known.",
        (
            "Look at what is held by whom, on the placement page under Check: weights, cache, states and buffers are told apart.",
            "Load the model again, which gives everything back, and report it with the report of this page.",
        ),
        (PLACE, RELOAD),
    ),
)

FIRST_TOKEN = (
    Cause(
        "first.prompt",
        "The prompt is long, and all of it is computed before the first word.",
        (
            "The same beginning is computed only once: keep the system prompt and earlier messages unchanged.",
            "Move layers to a GPU: prompts gain more from it than answers do.",
        ),
        (PLACE, CONTEXT),
    ),
    Cause(
        "first.cold",
        "The first answer after loading brings weights and kernels to where they are needed; the next one is faster.",
        ("Ask once more and compare. Layerdeck makes one short run by itself after loading.",),
        (MONITORS,),
        (
            Myth(
                "ten empty requests have to warm the processor's cache for each start",
                "Warming up is right, the reason is not: pages, GPU memory and clocks are what warms up, and one run does it.",
            ),
        ),
    ),
    Cause(
        "first.disk",
        "The weights do not stay in memory and are read from the disk again.",
        (
            "Choose a smaller quantisation, or move layers to a GPU, until the rest fits into the memory that is free.",
            "Keep the file on a local NVMe disk.",
        ),
        (row("D-MEM-1", "Show what the model needs"), row("D-DSK-1", "Show the model's disk"), PLACE),
        (
            Myth(
                "the page cache should be dropped before loading (drop_caches)",
                "That throws away the part of the model that is in memory already, and all of it is read again.",
            ),
            Myth(
                "the disk's scheduler has to be set to none",
                "NVMe disks have that from the start, and reading a model in one piece hardly depends on it.",
            ),
        ),
    ),
    Cause(
        "first.others",
        "Other requests or programs have the processor or the card at that moment.",
        ("End what else computes, or wait for the other answer.", "See on the monitors who is busy while nothing is asked."),
        (row("D-SYS-2", "Show other engines"), row("D-CPU-7", "Show what the host takes"), MONITORS),
    ),
    Cause(
        "first.unknown",
        "Nothing that was looked at explains it.",
        (
            "Calibrate this machine and compare: what it should reach is measured, not guessed.",
            "Watch the monitors through one question: the bar that is full is the limit.",
        ),
        (CALIBRATE, MONITORS),
        (
            Myth(
                "a sound card or another small device takes lanes from the GPU and should be pulled out",
                "Each slot has its own lanes on nearly every board. The rows about the link say what this one has.",
            ),
        ),
    ),
)

LINKS = (
    Cause(
        "link.lanes",
        "A GPU has fewer lanes than it and its slot could use.",
        (
            "Seat the card again, without a riser or with a better one.",
            "Look in the board's manual how slots share lanes, and set the slot's bifurcation in the firmware.",
            "Until then put few layers that exchange much on that card.",
        ),
        (row("D-PCI-1", "Show the lanes"), PLACE),
        (
            Myth(
                'the firmware\'s "PCIe speed: Auto" makes a card run on 8 lanes',
                "Lanes are wiring, contact and how slots share them. The setting concerns the generation only.",
            ),
            Myth(
                "two RTX 4090 are joined by an NVLink bridge",
                "Cards of that generation have no connector for one; they exchange over PCIe or through the machine's memory.",
            ),
        ),
    ),
    Cause(
        "link.generation",
        "Under load the link runs at a lower generation than card and slot could.",
        (
            "Set the slot's generation in the firmware and measure again under load; idle links always slow down.",
            "Try without the riser: it is the usual reason.",
        ),
        (row("D-PCI-2", "Show the link under load"), MONITORS),
        (
            Myth(
                "PCIe 4.0 with 16 lanes carries 16 GB/s one way",
                "It carries about twice as much in each direction; 16 GB/s is what 8 lanes carry.",
            ),
            Myth(
                "the link's power saving (ASPM) is switched by /sys/module/pci/parameters/aspm",
                "There is no such file: the policy stands in /sys/module/pcie_aspm/parameters/policy, and what it "
                "gains has to be measured.",
            ),
        ),
    ),
    Cause(
        "link.errors",
        "The link makes errors and repeats what was lost.",
        (
            "Seat the card again and change the riser or cable.",
            "If errors stay, one generation lower is faster than repeating.",
        ),
        (row("D-PCI-3", "Show the errors of the link"),),
        (
            Myth(
                "AER should be disabled, as it slows transfers down",
                "It only reports errors. Without it a bad riser stays hidden.",
            ),
        ),
    ),
    Cause(
        "link.traffic",
        "The link is as it should be; the placement sends much over it.",
        (
            "Keep layers that follow each other on one device, so that little crosses.",
            "Larger chunks of prompts cross less often.",
        ),
        (PLACE, MONITORS),
        (
            Myth(
                "perf or ethtool show the traffic of a PCIe switch",
                "Neither has such counters; ethtool reads network cards. The monitors show what the engine itself moved.",
            ),
        ),
    ),
)

CAUSES = CRASHES + MEMORY + FIRST_TOKEN + LINKS
"""Of crashes, memory, first words and links; the others are in `speed_causes` and `other_causes`."""
