"""The keys of the placement board as the page of shortcuts lists them: no actions, they count where a card has the keyboard."""

from __future__ import annotations

BOARD_KEYS: tuple[tuple[str, str], ...] = (
    ("1 – 9", "Move the selected cards to that device"),
    ("N", "Split the selected cards over all memory nodes, or bring them to one"),
    ("Ctrl+drop", "Split the cards over all memory nodes, dropped on one of these"),
    ("P", "Pin or unpin the selected cards"),
    ("E", "Open or close a group of layers"),
    ("G", "Show ranges of layers, or each card"),
    ("A", "Auto-fit"),
    ("/", "Filter the cards"),
    ("Ctrl+A", "Select the group of the card"),
)
"""(keys, what they do)."""
