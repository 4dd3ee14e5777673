"""The report for others: complete, and without anything of the person."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.doctor.report import Private, redacted, report_text
from tests.helpers.doctor_rows import BAD, GOOD, SLOW, view

ME = Private("/home/ada", "ada", "ada-desktop", ("/srv/models", "/data/layerdeck"))


def test_it_has_every_check_with_the_worst_of_a_group_first() -> None:
    slow = view(SLOW, group="Processor")
    text = report_text(["Layerdeck 1"], [view(GOOD), slow, view(BAD)], ME)
    assert text.splitlines() == [
        "Layerdeck 1",
        "",
        "Processor",
        "  WARN D-NUMA-2  Balancing: it is on",
        "       /proc/sys: 1",
        "  ok   D-CPU-1  Instruction set: AVX2",
        "",
        "PCIe",
        "  FAIL D-PCI-1  Lanes: 4 of 16 lanes",
    ]


def test_names_and_folders_are_left_out() -> None:
    text = (
        "/home/ada/models/a.gguf is 3 GB short; /srv/models/b.gguf; mounted at /media/ada/disk and /run/media/ada/x; "
        "ada@ada-desktop; process of Ada; /home/bob/c; adapter; /data/layerdeck/chats.db"
    )
    found = redacted(text, ME)
    assert found == (
        "~/models/a.gguf is 3 GB short; <folder>/b.gguf; mounted at /media/<user>/disk and /run/media/<user>/x; "
        "<user>@<host>; process of <user>; /home/<user>/c; adapter; <folder>/chats.db"
    )


def test_root_and_short_names_are_no_secret() -> None:
    private = Private("/root", "root", "localhost")
    assert redacted("/root/x: only root may read localhost", private) == "~/x: only root may read localhost"
    assert redacted("an io scheduler", Private("/", "io", "")) == "an io scheduler"


WORD = st.text("abcdefghijklmnopqrstuvwxyz", min_size=4, max_size=8)


@given(WORD, WORD)
def test_no_home_and_no_name_is_left(user: str, host: str) -> None:
    private = Private(f"/home/{user}", f"q{user}q", f"q{host}q")
    slow = view(SLOW, evidence=f"/home/{user}/x by q{user}q\n(q{host}q)", observed=f"q{user}q on q{host}q: /home/q{host}q")
    text = report_text([], [slow], private)
    assert f"/home/{user}" not in text and f"q{user}q" not in text and f"q{host}q" not in text
    assert "~/x" in text
