"""Causes of slow answers, of devices that rest, and of cards that are not used. Data only, as in `causes`."""

from __future__ import annotations

from engine.advice.causes import CALIBRATE, CONTEXT, ENGINE, MONITORS, PLACE, row
from engine.advice.symptom_walk import Cause, Myth

SPEED = (
    Cause(
        "slow.heat",
        "A processor or card slows itself down because it is hot.",
        (
            "Clean filters and fans, and give the card's intake cool air.",
            "A power limit of about 80 % often costs little speed while answers are written, and takes much heat away.",
        ),
        (row("D-GPU-6", "Show why clocks are low"), row("D-CPU-5", "Show the processor's temperature"), MONITORS),
        (
            Myth(
                "a card that prefers maximum performance (PowerMizer) keeps its clock when it is hot",
                "That setting does not lift a limit of heat or power. The row says which one holds the clock down.",
            ),
        ),
    ),
    Cause(
        "slow.power",
        "The system or a limit saves power: clocks stay below what they could be.",
        (
            "Choose the profile for performance in the system's power settings, or as the row shows.",
            "Plug the computer in.",
        ),
        (
            row("D-CPU-4", "Show the policy of the clock"),
            row("D-GPU-5", "Show the card's power limit"),
            row("D-CPU-6", "Show the battery"),
        ),
        (
            Myth(
                "C-states and CPPC should be disabled in the firmware",
                "Deep idle states let busy cores boost higher, and CPPC chooses clocks, not cores. Try it as an "
                "experiment that you measure, not as a rule.",
            ),
            Myth(
                "after a change of the firmware's settings the CMOS has to be cleared",
                "That erases the settings which were just made.",
            ),
        ),
    ),
    Cause(
        "slow.swap",
        "Memory is short: parts of the model or of the program are on the disk.",
        (
            "Close programs, or choose a smaller model, quantisation or context.",
            "Move layers to a GPU that has room.",
        ),
        (row("D-MEM-5", "Show the swap"), row("D-MEM-1", "Show what the model needs"), PLACE),
        (
            Myth(
                "vm.swappiness=1 solves it",
                "It is harmless, but it makes no memory. What does not fit is read from the disk either way.",
            ),
            Myth(
                "a node whose MemUsed is above 90 % is about to swap",
                "That figure includes the page cache, which the system gives back at once.",
            ),
        ),
    ),
    Cause(
        "slow.threads",
        "More workers run than there are cores for them, or they are held to few cores.",
        (
            "Leave the number of threads at 0: one worker for each physical core that this process may use.",
            "Let it be measured: on a few machines another number is faster.",
        ),
        (row("D-CPU-2", "Show workers and cores"), row("D-CPU-3", "Show which cores may be used"), ENGINE),
        (
            Myth(
                "simultaneous multithreading has to be switched off in the firmware, as it halves the speed",
                "The number of workers decides, not the switch. Layerdeck takes one a core and leaves the second "
                "thread to others.",
            ),
            Myth(
                "numactl and taskset are both needed around the program",
                "Layerdeck binds each of its workers and their memory itself.",
            ),
        ),
    ),
    Cause(
        "slow.nodes",
        "Weights lie on another memory node than the cores that read them.",
        (
            "Place the model again: weights are put down beside the cores that read them, without a restart.",
            "Where the kernel moves pages by itself, the row shows how to stop that.",
        ),
        (row("D-NUMA-3", "Show where the weights lie"), row("D-NUMA-2", "Show what the kernel moves"), PLACE),
        (
            Myth(
                "numactl --interleave=all helps on every EPYC, and automatic NUMA balancing costs half the speed",
                "With one memory node both do nothing: there is only one place to be. With several, the placement decides.",
            ),
            Myth(
                "interleaving over all dies is to be combined with binding to node 0",
                "They exclude each other: with all dies interleaved there is only one node.",
            ),
        ),
    ),
    Cause(
        "slow.memory",
        "The machine's memory is slower than it could be, and it is what limits layers on the CPU.",
        (
            "Fill all channels, in the slots that the board's manual names.",
            "Check that modules run at the speed printed on them.",
            "Move more layers to a GPU: they no longer wait for this memory.",
        ),
        (row("D-MEM-3", "Show the measured bandwidth"), row("D-MEM-2", "Show the channels"), CALIBRATE, PLACE),
        (
            Myth(
                "DDR4-3600 gives an EPYC 14 % more",
                "These processors take DDR4-3200 at most, and server boards offer no more.",
            ),
            Myth(
                "eight modules of 16 GB on two sockets fill every channel",
                "They fill four of eight on each socket, which is half the bandwidth.",
            ),
        ),
    ),
    Cause(
        "slow.conversation",
        "The conversation is long: each new token looks back at all of it. That is no fault.",
        ("Begin a new chat for another subject, or trim the oldest messages.",),
        (CONTEXT,),
    ),
    Cause(
        "slow.bound",
        "The model reads as many bytes for each token as this machine can in that time.",
        (
            "Move what is read most to a GPU with room: the editor shows the gain before the move.",
            "A smaller quantisation reads less for each token. Of models with experts only the chosen ones are read, "
            "of dense models everything is.",
            "Calibrate, so that what is predicted is measured on this machine.",
        ),
        (PLACE, CALIBRATE, MONITORS),
        (
            Myth(
                "two sockets are twice as fast as one",
                "About a third more is usual: what crosses between them costs.",
            ),
            Myth(
                "only certain processors work, and a build of one's own is needed for AVX2",
                "Every processor with AVX2 does. The package has code for several instruction sets and takes the best one here.",
            ),
        ),
    ),
)

BALANCE = (
    Cause(
        "gpu.bound",
        "The card computes nearly all the time and is the limit; the CPU waits for it. Nothing is wrong.",
        (
            "Where another card has room, spread layers over both.",
            "With one card nothing is to be gained on the CPU's side.",
        ),
        (PLACE, MONITORS),
        (
            Myth(
                "workers have to be bound to chiplets when the card is full and the processor is not",
                "That picture just means that the card is the limit. Binding workers otherwise changes nothing about it.",
            ),
        ),
    ),
    Cause(
        "gpu.uneven",
        "One card has more work than the others.",
        ("Move layers from the card that computes longest to one that waits; the editor shows milliseconds a token of each.",),
        (PLACE,),
    ),
    Cause(
        "gpu.waits",
        "Layers or experts on the CPU take most of the time, and the card waits for them.",
        (
            "Move experts or layers to the card as long as it has room, those that are read most first.",
            "Look whether memory, threads or heat hold the CPU back: the rows below say so.",
        ),
        (PLACE, row("D-MEM-3", "Show the measured bandwidth"), row("D-CPU-2", "Show workers and cores")),
        (
            Myth(
                "a card that is busy 65 to 75 % of the time shows a healthy setup",
                "How busy a card is depends on how the model is split. Compare with what the placement predicts.",
            ),
        ),
    ),
    Cause(
        "cores.uneven",
        "Some workers finish later than others, or cores were kept away from them.",
        (
            "Leave the choice of cores to Layerdeck: one worker a core, evenly over chiplets and nodes.",
            "Look whether a container, a quota or another program takes cores away.",
        ),
        (row("D-CPU-3", "Show which cores may be used"), row("D-NUMA-3", "Show where the weights lie"), ENGINE, MONITORS),
        (
            Myth(
                "taskset -c 0-7,16-23,32-39,48-55 spreads 64 workers well",
                "That list has 32 processors: two workers would share each, while half of the chiplets rest.",
            ),
            Myth(
                "cores 64 to 127 of two processors with 64 cores each are always the second one",
                "With two threads a core the numbers go on behind: the first one then has 0 to 63 and 128 to 191.",
            ),
        ),
    ),
    Cause(
        "gpu.driver",
        "The card's driver is missing, too old or does not match, so the card cannot be used.",
        ("Install the driver as the row shows for this system, then restart.",),
        (
            row("D-GPU-1", "Show the GPU's driver"),
            row("D-GPU-2", "Show the driver's version"),
            row("D-GPU-3", "Show what the card can run"),
        ),
        (
            Myth(
                "the driver has to be 535.129.03 and CUDA 12.1, as newer ones break AVX2",
                "Newer ones are fine, and cards of the RTX 50 series need them. They have no part in code for the CPU.",
            ),
        ),
    ),
    Cause(
        "gpu.none",
        "No card was found, so the CPU does everything.",
        (
            "If there is one, look whether the system sees it; in a container it has to be handed in.",
            "Without one, models with few active experts and small dense models are the fast ones.",
        ),
        (row("D-GPU-1", "Show the GPU's driver"), PLACE),
    ),
    Cause(
        "gpu.unplaced",
        "The model was placed without the card.",
        ("Let Auto-fit place it: as much as fits goes to the card.",),
        (PLACE,),
    ),
)

SPEED_CAUSES = SPEED + BALANCE
