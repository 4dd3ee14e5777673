"""What the pictures of the doctor's page say: a workstation with two cards, on which all is well or a few things are not."""

from __future__ import annotations

from app.doctor.rows import CheckView, FixView

_CPU, _MEMORY, _LINK, _GPU = "Processor", "Memory and nodes", "PCIe", "GPUs"
_DISK, _SYSTEM, _WINDOW = "Disk and files", "System", "Window"

WELL: tuple[CheckView, ...] = (
    CheckView("D-CPU-1", _CPU, "Instruction set", "pass", "AVX-512 VNNI", "Layers on the CPU need AVX2, FMA and F16C."),
    CheckView("D-CPU-2", _CPU, "Workers and cores", "pass", "60 of 64 cores", "More workers than cores slow each other down."),
    CheckView("D-CPU-3", _CPU, "Cores that may be used", "pass", "all 64", "A container or quota may take cores away."),
    CheckView(
        "D-CPU-4", _CPU, "Clock policy", "pass", "amd-pstate-epp, performance", "Saving power keeps clocks low under load."
    ),
    CheckView("D-CPU-5", _CPU, "Temperature", "pass", "58 °C of 95 °C", "A hot processor slows itself down."),
    CheckView("D-CPU-6", _CPU, "Battery", "n/a", "no battery", "On battery clocks are kept low."),
    CheckView(
        "D-MEM-1", _MEMORY, "Room for the model", "pass", "141 GB of 498 GB free", "What does not fit is read from the disk."
    ),
    CheckView(
        "D-MEM-3", _MEMORY, "Measured bandwidth", "pass", "372 of 410 GB/s", "Decoding reads every active weight once a token."
    ),
    CheckView("D-MEM-5", _MEMORY, "Swap", "pass", "not used", "Weights in swap are read from the disk for every word."),
    CheckView("D-NUMA-1", _MEMORY, "Memory nodes", "pass", "1 node", "Several nodes are read best by their own cores."),
    CheckView("D-NUMA-2", _MEMORY, "Automatic NUMA balancing", "n/a", "one node", "The kernel may move memory while it is read."),
    CheckView("D-PCI-1", _LINK, "Lanes", "pass", "2 × 16 lanes", "Fewer lanes carry prompts and activations slower."),
    CheckView("D-PCI-3", _LINK, "Link errors", "pass", "none", "Errors are repeated and cost time."),
    CheckView("D-GPU-1", _GPU, "Driver", "pass", "580.95, 2 cards", "Without it no card can be used."),
    CheckView("D-GPU-4", _GPU, "Memory of others", "pass", "0.4 of 24 GB", "What others hold cannot be used for layers."),
    CheckView("D-DSK-1", _DISK, "Disk of the models", "pass", "NVMe, ext4, 6.8 GB/s", "Loading reads the whole file once."),
    CheckView("D-DSK-3", _DISK, "Free space", "pass", "1.4 TB", "Chats cannot be saved on a full disk."),
    CheckView("D-SYS-2", _SYSTEM, "Other engines", "pass", "none", "They hold memory and cores."),
    CheckView("D-QT-3", _WINDOW, "Fonts", "pass", "Inter, Noto Sans CJK SC", "Without one, Chinese text is a row of boxes."),
    CheckView("D-QT-7", _WINDOW, "Longest wait", "pass", "41 ms", "The window should never keep you waiting."),
)

WARNINGS: tuple[CheckView, ...] = (
    CheckView(
        "D-CPU-4",
        _CPU,
        "Clock policy",
        "warn",
        "acpi-cpufreq, powersave",
        "The system holds the processor slow to save power.",
        (
            FixView(
                "powerprofilesctl set performance",
                "the power profile of this session, without root",
                "powerprofilesctl set balanced",
            ),
            FixView(
                "sudo cpupower frequency-set -g performance",
                "the governor of all cores until the next start",
                "sudo cpupower frequency-set -g schedutil",
            ),
        ),
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver: acpi-cpufreq\n"
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor: powersave",
    ),
    CheckView(
        "D-SYS-2",
        _SYSTEM,
        "Other engines",
        "warn",
        "ollama holds 18 GB on GPU 0",
        "They hold memory and cores.",
        (FixView("ollama stop qwen3:30b", "unloads that model from Ollama", "ask Ollama for it again"),),
    ),
    CheckView(
        "D-MEM-2",
        _MEMORY,
        "Memory channels",
        "unknown",
        "the firmware's table is for root only",
        "Empty channels cost bandwidth.",
    ),
)

NARROW_LINK = CheckView(
    "D-PCI-1",
    _LINK,
    "Lanes",
    "fail",
    "GPU 1 runs on 4 of 16 lanes",
    "Fewer lanes carry prompts and activations slower.",
    (
        FixView(
            "sudo lspci -vv -s 0000:41:00.0 | grep -E 'LnkCap|LnkSta'",
            "nothing; it shows what the card can do and what it does",
        ),
    ),
    "/sys/bus/pci/devices/0000:41:00.0/current_link_width: 4\n/sys/bus/pci/devices/0000:41:00.0/max_link_width: 16",
)

FAILED_CHECK = CheckView(
    "D-DSK-1",
    _DISK,
    "Disk of the models",
    "unknown",
    "the check itself failed: Permission denied: /sys/block/nvme0n1/queue/rotational",
    "Loading reads the whole file once.",
)
