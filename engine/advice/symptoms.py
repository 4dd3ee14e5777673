"""The guided tree of symptoms: what people see, and the questions that lead to a cause. Data only; `symptom_walk.walk` walks it.

Figures that may answer a question, each missing where it is not known:
`prompt_tokens` computed for the last answer; `answers` since the model was loaded; `context_percent` of the context in use;
`gpu_percent` of the model's bytes that lie on cards; `n_gpus` that this machine has; `growth_mb_h`: what a loaded model holds
more each hour without a known reason.
"""

from __future__ import annotations

from engine.advice.causes import CAUSES
from engine.advice.other_causes import OTHER_CAUSES
from engine.advice.speed_causes import SPEED_CAUSES
from engine.advice.symptom_walk import Answer, FromCheck, FromFigure, FromFinding, Question, Symptom, tree_of

LONG_PROMPT = 4000
"""Tokens. From here on computing a prompt takes seconds on most machines."""

SYMPTOMS = (
    Symptom("slow", "Answers come slowly", "Fewer words a second than this machine should give", "slow.what"),
    Symptom("slower", "It gets slower while it runs", "It began faster than it is now", "slower.what"),
    Symptom("first", "The first word takes long", "Seconds pass before an answer begins, or it varies", "first.prompt?"),
    Symptom(
        "text",
        "The text is garbled or repeats itself",
        "Nonsense, wrong characters, or one sentence again and again",
        "text.kind",
    ),
    Symptom("load", "A model does not load", "It is refused, or loading never ends", "load.what"),
    Symptom("vram", "GPU memory runs full", "It grows until something fails", "vram.when"),
    Symptom("nogpu", "The GPU is not used", "Everything runs on the processor", "nogpu.what"),
    Symptom("gpufull", "The GPU is busy while the processor rests", "Less than half of the cores work", "gpufull.what"),
    Symptom("cpufull", "The processor is busy while the GPU rests", "The card waits most of the time", "cpufull.what"),
    Symptom("cores", "Some cores work, others rest", "Half of the cores are idle, or one node is", "cores.what"),
    Symptom("link", "Copies to a GPU are slow", "Fewer lanes or a lower generation than expected", "link.what"),
    Symptom("crash", "The program ended by itself", "A crash, an abort, or it was gone", "crash.how"),
    Symptom("window", "The window stutters", "Typing and scrolling hesitate", "window.what"),
)

_HEAT = (FromFinding("R-THERM-G"), FromFinding("R-THERM-C"), FromFinding("R-BRAKE"), FromCheck("D-GPU-6"), FromCheck("D-CPU-5"))
_POWER = (FromFinding("R-POWER"), FromFinding("R-CLK"), FromCheck("D-CPU-4"), FromCheck("D-GPU-5"), FromCheck("D-CPU-6"))
_SWAP = (FromFinding("R-SWAP"), FromFinding("R-PSI"), FromCheck("D-MEM-5"))
_THREADS = (FromFinding("R-SMT"), FromFinding("R-CPU-EFF"), FromCheck("D-CPU-2"))
_NODES = (FromFinding("R-NUMA-1"), FromFinding("R-NUMA-2"), FromCheck("D-NUMA-3"), FromCheck("D-NUMA-2"))
_OTHERS = (FromFinding("R-CONT"), FromFinding("R-QUEUE"), FromFinding("R-VRAM-EXT"), FromCheck("D-SYS-2"), FromCheck("D-CPU-7"))
_DISK = (FromFinding("R-DISK"), FromCheck("D-MEM-1"), FromCheck("D-DSK-1"))
_LANES = (FromFinding("R-PCIE-W"), FromCheck("D-PCI-1"))
_GENERATION = (FromFinding("R-PCIE-G"), FromCheck("D-PCI-2"))
_CACHE = (FromFinding("R-KV-1"), FromFinding("R-KV-SPD"), FromFigure("context_percent", "%1 % of the context is in use.", 80))

QUESTIONS = (
    Question(
        "slow.what",
        "What is so here?",
        (
            Answer("heat", "It is hot, or clocks are low because of heat", "slow.heat", _HEAT),
            Answer("swap", "Memory is short, the disk works", "slow.swap", _SWAP),
            Answer("disk", "Weights are read from the disk while it answers", "first.disk", _DISK),
            Answer("power", "Power is being saved", "slow.power", _POWER),
            Answer("threads", "There are more workers than cores", "slow.threads", _THREADS),
            Answer("nodes", "Weights lie on another memory node", "slow.nodes", _NODES),
            Answer(
                "memory", "The memory is slower than it could be", "slow.memory", (FromCheck("D-MEM-3"), FromCheck("D-MEM-2"))
            ),
            Answer("others", "Something else uses the processor or card", "first.others", _OTHERS),
            Answer("long", "The conversation is long", "slow.conversation", _CACHE),
            Answer("none", "None of these", "slow.where"),
        ),
    ),
    Question(
        "slow.where",
        "Who is busy while it answers?",
        (
            Answer("gpu", "The card", "gpu.bound", (FromFinding("R-GPU-BOUND"),)),
            Answer("uneven", "One card more than the others", "gpu.uneven", (FromFinding("R-GPU-IMB"),)),
            Answer("link", "The link between them", "link.what", (FromFinding("R-XFER"), *_LANES)),
            Answer("cpu", "The processor", "slow.bound", (FromFinding("R-CPU-BW"), FromFinding("R-CPU-COMP"))),
            Answer("unknown", "I cannot tell", "slow.bound"),
        ),
    ),
    Question(
        "slower.what",
        "What has changed since it was faster?",
        (
            Answer("heat", "It became hot", "slow.heat", _HEAT),
            Answer("long", "The conversation became long", "slow.conversation", _CACHE),
            Answer("others", "Another program was started", "first.others", _OTHERS),
            Answer("swap", "Memory became short", "slow.swap", _SWAP),
            Answer("none", "Nothing that I know of", "slow.what"),
        ),
    ),
    Question(
        "first.prompt?",
        "Was the question long, a document for example?",
        (
            Answer(
                "yes",
                "Yes, thousands of words",
                "first.prompt",
                (
                    FromFinding("R-PREFILL"),
                    FromFigure("prompt_tokens", "%1 tokens were computed for the last answer.", LONG_PROMPT),
                ),
            ),
            Answer("no", "No", "first.cold?"),
        ),
    ),
    Question(
        "first.cold?",
        "Is it only the first answer after loading?",
        (
            Answer(
                "yes",
                "Yes, later ones begin sooner",
                "first.cold",
                (FromFinding("R-COLD"), FromFigure("answers", "%1 answer was given since the model was loaded.", 1, 1)),
            ),
            Answer("no", "No, every one", "first.what"),
        ),
    ),
    Question(
        "first.what",
        "What is so while you wait?",
        (
            Answer("disk", "The disk works", "first.disk", _DISK),
            Answer("lanes", "A card has fewer lanes than it could use", "link.lanes", _LANES),
            Answer("generation", "A card's link stays slow under load", "link.generation", _GENERATION),
            Answer("errors", "A link makes errors", "link.errors", (FromCheck("D-PCI-3"),)),
            Answer("others", "Other requests or programs are busy", "first.others", _OTHERS),
            Answer("none", "None of these", "first.unknown"),
        ),
    ),
    Question(
        "text.kind",
        "What does the text look like?",
        (
            Answer("numbers", "The engine says that numbers are invalid", "text.numbers", (FromFinding("R-NAN"),)),
            Answer("repeats", "Good words, but the same again and again", "text.repeats"),
            Answer("nonsense", "Nonsense from the first words on", "text.what"),
            Answer("later", "Good at first, nonsense after a long text", "text.rope?"),
            Answer("roles", "It talks to itself or shows odd marks", "text.template"),
        ),
        otherwise=False,
    ),
    Question(
        "text.what",
        "What is so here?",
        (
            Answer("copies", "Direct copies between cards lose data", "text.copies", (FromCheck("D-PCI-6"),)),
            Answer("memory", "The machine's memory reports errors", "text.memory", (FromCheck("D-MEM-8"),)),
            Answer("file", "The file is damaged", "text.file", (FromCheck("D-FIL-1"), FromCheck("D-FIL-3"))),
            Answer("template", "The file's chat template cannot be used", "text.template", (FromCheck("D-FIL-4"),)),
            Answer("none", "None of these", "text.rope?"),
        ),
    ),
    Question(
        "text.rope?",
        "Was the model started with a rope_freq_base of your own?",
        (
            Answer("yes", "Yes, by an option or an imported configuration", "text.rope"),
            Answer("no", "No", "text.cpu?"),
        ),
    ),
    Question(
        "text.cpu?",
        "Is the same question answered well with everything in the machine's memory?",
        (
            Answer("yes", "Yes, only a card's side is wrong", "text.numbers"),
            Answer("no", "No, it is as bad", "text.file"),
        ),
    ),
    Question(
        "load.what",
        "What is said?",
        (
            Answer("file", "The file is damaged or a part is missing", "load.file", (FromCheck("D-FIL-1"), FromCheck("D-FIL-2"))),
            Answer("memory", "Memory does not suffice", "load.memory", (FromCheck("D-MEM-1"),)),
            Answer("vram", "A card's memory does not suffice", "vram.when", (FromCheck("D-GPU-4"),)),
            Answer("driver", "A card or its driver cannot be used", "gpu.driver", (FromCheck("D-GPU-1"), FromCheck("D-GPU-2"))),
            Answer("kind", "The architecture or a type is not known", "load.kind"),
            Answer("slow", "Nothing, it only takes long", "load.disk", (FromCheck("D-DSK-1"),)),
        ),
        otherwise=False,
    ),
    Question(
        "vram.when",
        "When does it run full?",
        (
            Answer(
                "others", "When other programs use the card", "vram.others", (FromFinding("R-VRAM-EXT"), FromCheck("D-GPU-4"))
            ),
            Answer("fragments", "Though enough seems free", "vram.fragments", (FromFinding("R-FRAG"),)),
            Answer("long", "As a conversation becomes long", "vram.cache", (FromFinding("R-VRAM"), *_CACHE)),
            Answer(
                "grows",
                "Over hours, with short conversations too",
                "vram.grows",
                (FromFigure("growth_mb_h", "What is held grows by %1 MB an hour without a known reason.", 1),),
            ),
            Answer("load", "While the model loads", "vram.plan"),
        ),
        otherwise=False,
    ),
    Question(
        "nogpu.what",
        "What is so here?",
        (
            Answer(
                "driver",
                "The driver is missing, too old or does not match",
                "gpu.driver",
                (FromCheck("D-GPU-1"), FromCheck("D-GPU-2"), FromCheck("D-GPU-3")),
            ),
            Answer(
                "none",
                "This machine has no card that was found",
                "gpu.none",
                (FromFigure("n_gpus", "%1 cards were found.", 0, 0),),
            ),
            Answer(
                "unplaced",
                "No layer lies on a card",
                "gpu.unplaced",
                (FromFigure("gpu_percent", "%1 % of the model lies on cards.", 0, 0),),
            ),
            Answer("waits", "Some layers do, but the card rests", "cpufull.what"),
        ),
    ),
    Question(
        "gpufull.what",
        "How is the model placed?",
        (
            Answer(
                "all",
                "All of it on cards",
                "gpu.bound",
                (FromFinding("R-GPU-BOUND"), FromFigure("gpu_percent", "%1 % of the model lies on cards.", 99)),
            ),
            Answer("uneven", "One card computes longer than another", "gpu.uneven", (FromFinding("R-GPU-IMB"),)),
            Answer("threads", "Partly on the processor, whose cores rest", "slow.threads", _THREADS),
            Answer("part", "Partly on the processor, and I do not know more", "gpu.bound"),
        ),
        otherwise=False,
    ),
    Question(
        "cpufull.what",
        "What is so here?",
        (
            Answer("lanes", "The card has fewer lanes than it could use", "link.lanes", _LANES),
            Answer("threads", "There are more workers than cores", "slow.threads", _THREADS),
            Answer("nodes", "Weights lie on another memory node", "slow.nodes", _NODES),
            Answer(
                "memory", "The memory is slower than it could be", "slow.memory", (FromCheck("D-MEM-3"), FromCheck("D-MEM-2"))
            ),
            Answer("none", "None of these", "gpu.waits"),
        ),
    ),
    Question(
        "cores.what",
        "Which cores rest?",
        (
            Answer("node", "Those of one memory node or socket", "slow.nodes", _NODES),
            Answer("kept", "Those that this program may not use", "cores.uneven", (FromCheck("D-CPU-3"),)),
            Answer("second", "Every second one: the second threads of cores", "slow.threads", (FromCheck("D-CPU-2"),)),
            Answer("chiplet", "Those of some chiplets", "cores.uneven", (FromFinding("R-IMB"),)),
            Answer("gpu", "All of them, most of the time", "gpufull.what"),
        ),
        otherwise=False,
    ),
    Question(
        "link.what",
        "What is so here?",
        (
            Answer("lanes", "A card has fewer lanes than it could use", "link.lanes", _LANES),
            Answer("generation", "The generation stays low under load", "link.generation", _GENERATION),
            Answer("errors", "The link makes errors", "link.errors", (FromCheck("D-PCI-3"),)),
            Answer("none", "None of these", "link.traffic"),
        ),
    ),
    Question(
        "crash.how",
        "What was the last thing that was said?",
        (
            Answer("memory", "Killed, or out of memory", "crash.memory", (FromCheck("D-SYS-5"),)),
            Answer("isa", "Illegal instruction", "crash.isa", (FromCheck("D-CPU-1"),)),
            Answer("gpu", "A card was lost, or the screen went dark", "crash.gpu", (FromFinding("R-LOST"), FromCheck("D-GPU-8"))),
            Answer("file", "It happens with one file only", "crash.file", (FromCheck("D-FIL-1"),)),
            Answer("fault", "Segmentation fault, something else, or nothing", "crash.fault"),
        ),
        otherwise=False,
    ),
    Question(
        "window.what",
        "What is so here?",
        (
            Answer("stall", "The window had to wait for itself", "window.stall", (FromCheck("D-QT-7"),)),
            Answer("drawing", "It is drawn by the processor", "window.drawing", (FromCheck("D-QT-2"),)),
            Answer("others", "Other programs take the processor", "first.others", _OTHERS),
            Answer("none", "Only while an answer is written", "window.cores"),
        ),
        otherwise=False,
    ),
)

TREE = tree_of(SYMPTOMS, (*QUESTIONS, *CAUSES, *SPEED_CAUSES, *OTHER_CAUSES))
