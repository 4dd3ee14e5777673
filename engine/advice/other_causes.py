"""Causes of odd text, of models that do not load, and of a window that stutters. Data only, as in `causes`."""

from __future__ import annotations

from engine.advice.causes import CONTEXT, ENGINE, PLACE, RELOAD, SAMPLING, row
from engine.advice.symptom_walk import Cause, Myth

TEXT = (
    Cause(
        "text.copies",
        "Direct copies between cards lose data on this machine, which turns text into nonsense.",
        (
            "Let cards exchange through the machine's memory, which Layerdeck does by itself where its trial at loading failed.",
            "Set the IOMMU to pass-through (iommu=pt) if direct copies are wanted.",
        ),
        (row("D-PCI-6", "Show the trial of direct copies"), RELOAD),
        (
            Myth(
                "the IOMMU has to be switched on so that the processor can reach the card's memory",
                "Cards work without it. One that translates addresses can silently drop copies between cards.",
            ),
        ),
    ),
    Cause(
        "text.file",
        "The file's weights or figures are not what they should be.",
        (
            "Compare the file's checksum with the one that the source names, and download it again.",
            "Try another quantisation of the same model: a broken conversion stays broken.",
        ),
        (row("D-FIL-1", "Show what is wrong with the file"), row("D-FIL-3", "Show the checksum")),
        (
            Myth(
                "a 4-bit file is unusable, as a benchmark lost 37 %",
                "That figure was for 4-bit activations. 4-bit weights (Q4_K, IQ4) lose far less.",
            ),
        ),
    ),
    Cause(
        "text.rope",
        "The positions are turned with another base than the model was trained with.",
        (
            "Start without a value of your own for rope_freq_base: the file says the right one.",
            "If the file has none, take a newer conversion: Layerdeck refuses to guess it.",
        ),
        (RELOAD,),
        (
            Myth(
                "rope_theta has to be 10000, and converters should be patched to write it",
                "It differs from model to model, Qwen3.5 has 10 million. A value that is forced upon a model is what "
                "garbles its text.",
            ),
        ),
    ),
    Cause(
        "text.template",
        "The conversation is written in another form than the model was trained with.",
        (
            "Take a newer file of the model: its template is part of it.",
            "Models without instruction training continue a text; they do not answer.",
        ),
        (row("D-FIL-4", "Show the chat template"), RELOAD),
    ),
    Cause(
        "text.memory",
        "A memory module reports errors, so results may be wrong.",
        ("Test the modules one by one and replace the bad one.",),
        (row("D-MEM-8", "Show the errors of the memory"),),
    ),
    Cause(
        "text.repeats",
        "The sampling lets the model fall into a loop; small models and low temperatures do so most.",
        (
            "Raise the temperature to what the model's authors name, often 0.6 to 1.0.",
            "Raise the repetition penalty a little, to 1.05 or 1.1, or the presence penalty.",
        ),
        (SAMPLING,),
    ),
    Cause(
        "text.numbers",
        "The model produced invalid numbers.",
        (
            "Load it again with everything in the machine's memory and ask the same: if that is right, the card's side is wrong.",
            "Run `layerdeck selftest`, which compares every kernel with its plain form.",
            "Compare the file's checksum with the one that the source names.",
        ),
        (PLACE, row("D-FIL-3", "Show the checksum")),
    ),
)

LOADING = (
    Cause(
        "load.file",
        "The file is incomplete, a part of it is missing, or it is no GGUF file.",
        ("Download what is missing, all parts into one folder, and open the first one.",),
        (row("D-FIL-1", "Show what is wrong with the file"), row("D-FIL-2", "Show the parts")),
    ),
    Cause(
        "load.memory",
        "The model needs more memory than is free.",
        ("Choose a smaller quantisation or context, or move layers to a GPU with room.",),
        (row("D-MEM-1", "Show what the model needs"), PLACE, CONTEXT),
        (
            Myth(
                "a model of 122 billion parameters in F16 runs with 96 GB on cards and 128 GB of RAM",
                "Its weights alone are 244 GB. The editor says so before anything is read.",
            ),
        ),
    ),
    Cause(
        "load.kind",
        "This version does not know the model's architecture or the type of its weights.",
        (
            "`layerdeck inspect FILE` names what is not known.",
            "Take a file with common types, such as Q4_K_M or Q8_0, or look for a newer version of Layerdeck.",
        ),
        (PLACE,),
        (
            Myth(
                "a converter takes --use-f16, and F16 is the form that is fast",
                "llama.cpp's option is --outtype f16, and F16 reads three times as much for each token as 4 bits do.",
            ),
        ),
    ),
    Cause(
        "load.disk",
        "The file lies on a slow or remote disk.",
        ("Copy it to a local NVMe disk. A network that breaks while a file is mapped ends the model.",),
        (row("D-DSK-1", "Show the model's disk"), row("D-DSK-3", "Show free space")),
        (
            Myth(
                "systemd-resolved has to be disabled because downloads of a tokenizer hang",
                "That breaks name resolution on many systems. Layerdeck needs no network to load: the tokenizer is in the file.",
            ),
        ),
    ),
)

WINDOW = (
    Cause(
        "window.drawing",
        "The window is drawn by the processor, not by a graphics card.",
        ("Install the graphics card's libraries for OpenGL. Layerdeck draws little, so this is rarely felt.",),
        (row("D-QT-2", "Show how the window is drawn"),),
        (
            Myth(
                "the GPU's driver should be installed without its OpenGL files",
                "Then windows are drawn by the processor: it causes what it is meant to avoid.",
            ),
        ),
    ),
    Cause(
        "window.stall",
        "The window was kept waiting by something it had to do itself.",
        ("Copy the report of this page: it names where the longest wait was, and send it in.",),
        (row("D-QT-7", "Show the longest wait"),),
    ),
    Cause(
        "window.cores",
        "All cores are taken, so that the window has to wait for its turn.",
        ("Leave the number of threads at 0: one core is kept for the window.", "End other programs that compute."),
        (row("D-CPU-2", "Show workers and cores"), ENGINE),
    ),
)

OTHER_CAUSES = TEXT + LOADING + WINDOW
