"""Rows of a column of the board: cards, and ranges of layers of one family that stand together and can be opened.

Pure: from the cards of a device to rows with their texts. Rows of a column are sorted by their keys, whatever happens to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from app.i18n import filled, tr
from app.ops.placement_cards import ORDER, Card, CardId, Family, Kind, family_name
from app.ops.placement_planning import cards_text, nodes_text
from app.qtmodels.placement_filter import EVERYTHING, CardFilter
from app.widgets.format import bytes_text, short_count

MAX_RUNS = 6
"""More ranges than these of one family become one group: every other layer on a device is no reason for fifty rows."""
Key = tuple[int, int, bool, str]
"""(rank of the family, first layer, False for a group, what else tells rows apart)."""
_RANK = {family: rank for rank, family in enumerate(ORDER)}


@dataclass(frozen=True, slots=True)
class Row:
    """cards: one, or all of a group. detail: the second line. inside: a card of a group that is open."""

    key: Key
    cards: tuple[Card, ...]
    is_group: bool
    title: str
    detail: str
    size: str
    expanded: bool = False
    inside: bool = False

    @property
    def ids(self) -> frozenset[CardId]:
        """What moves with it."""
        return frozenset(card.id for card in self.cards)

    @property
    def kind(self) -> Kind:
        """The colour."""
        return self.cards[0].kind

    @property
    def family(self) -> Family:
        """Of all its cards."""
        return self.cards[0].family

    @property
    def pinned(self) -> bool:
        """Whether nothing of it can be moved."""
        return all(card.pinned for card in self.cards)

    @property
    def moved(self) -> bool:
        """Whether anything of it lies elsewhere than in the loaded model."""
        return any(card.moved for card in self.cards)

    @property
    def has_strip(self) -> bool:
        """Whether the use of its experts is known and shown."""
        return not self.is_group and bool(self.cards[0].heat)

    def spoken(self, device: str) -> str:
        """As it is read aloud: `Layer 4, experts, 6.3 gigabytes, on NUMA 0`."""
        name = family_name(self.family)
        if self.is_group:
            layers = [card.layer for card in self.cards]
            what = filled(tr("Placement", "%1, layers %2 to %3, %4"), name, layers[0], layers[-1], cards_text(len(layers)))
        elif self.cards[0].layer < 0:
            what = name
        else:
            what = filled(
                tr("Placement", "Layer %1, %2"), self.cards[0].layer, name[0].lower() + name[1:] if name != "KV" else name
            )
        parts = [what, spoken_bytes(sum(card.nbytes for card in self.cards)), filled(tr("Placement", "on %1"), device)]
        if self.is_group:
            parts.append(tr("Placement", "open") if self.expanded else tr("Placement", "closed"))
        over = {card.nodes for card in self.cards}
        if len(over) == 1 and (nodes := next(iter(over))):
            parts.append(filled(tr("Placement", "split over %1"), nodes_text(nodes)))
        if self.pinned:
            parts.append(tr("Placement", "pinned"))
        if self.moved:
            parts.append(tr("Placement", "not applied yet"))
        return ", ".join(parts)


def spoken_bytes(n: int) -> str:
    """`6.3 gigabytes`."""
    value, _, unit = bytes_text(n).partition(" ")
    names = {
        "B": tr("Placement", "bytes"),
        "kB": tr("Placement", "kilobytes"),
        "MB": tr("Placement", "megabytes"),
        "GB": tr("Placement", "gigabytes"),
        "TB": tr("Placement", "terabytes"),
    }
    return f"{value} {names[unit]}"


@dataclass(frozen=True, slots=True)
class Layout:
    """How the cards of every column are shown. expanded: cards whose group is open; n_ctx: tokens that caches are for."""

    filter: CardFilter = EVERYTHING
    grouped: bool = True
    expanded: frozenset[CardId] = frozenset()
    n_ctx: int = 0


def key_of(card: Card) -> Key:
    """The key of the row of a card."""
    return (_RANK[card.family], card.layer, True, str(card.id))


def row_for(cards: Sequence[Card]) -> Row:
    """One row that stands for some cards together, wherever they lie: a card, a range, or a number of them."""
    chosen = sorted(cards, key=key_of)
    first, family = chosen[0], {card.family for card in chosen}
    nbytes = sum(card.hot_bytes if card.n_hot else card.nbytes for card in chosen)
    n_hot = {card.n_hot for card in chosen} if family == {"experts"} else {0}
    if n_hot != {0} and len(n_hot) == 1:
        title = filled(tr("Placement", "Hottest %1 of %2"), first.n_hot, first.n_experts)
        stripes = replace(first, family="hot")
        return Row(key_of(first), (stripes,), False, title, "", bytes_text(nbytes))
    if len(chosen) == 1:
        return _card_row(first, inside=False)
    title = cards_text(len(chosen))
    if len(family) == 1:
        title = filled(tr("Placement", "%1 %2–%3"), family_name(first.family), first.layer, chosen[-1].layer)
    detail = _formats(chosen) if len(family) == 1 else ", ".join(dict.fromkeys(family_name(card.family) for card in chosen))
    return Row(key_of(first), (first,), False, title, detail, bytes_text(nbytes))


def rows_of(cards: Iterable[Card], layout: Layout) -> tuple[Row, ...]:
    """The rows of a column. cards: of one device, sorted by family and layer."""
    shown = [card for card in cards if layout.filter.is_open or layout.filter.passes(card)]
    if not layout.grouped:
        return tuple(_card_row(card, inside=False) for card in shown)
    rows: list[Row] = []
    for _, of_family in groupby(shown, key=lambda card: card.family):
        for run in _runs(tuple(of_family)):
            rows += _rows_of_run(run, layout)
    return tuple(rows)


def _runs(cards: Sequence[Card]) -> list[tuple[Card, ...]]:
    """Cards cut where layers are left out; all of them together where that makes too many parts."""
    cuts = [0, *(i for i, (a, b) in enumerate(pairwise(cards), 1) if b.layer != a.layer + 1), len(cards)]
    runs = [tuple(cards[a:b]) for a, b in pairwise(cuts)]
    return runs if len(runs) <= MAX_RUNS else [tuple(cards)]


def _rows_of_run(run: tuple[Card, ...], layout: Layout) -> list[Row]:
    if len(run) == 1:
        return [_card_row(run[0], inside=False)]
    # Most of it, so that a card that comes from elsewhere neither opens nor closes a group.
    expanded = 2 * _n_in(run, layout.expanded) > len(run)
    rows = [_group_row(run, layout.n_ctx, expanded)]
    return rows + [_card_row(card, inside=True) for card in run] if expanded else rows


def _n_in(run: Iterable[Card], expanded: Collection[CardId]) -> int:
    return sum(1 for card in run if card.id in expanded)


def _group_row(run: tuple[Card, ...], n_ctx: int, expanded: bool) -> Row:
    first, last, card = run[0].layer, run[-1].layer, run[0]
    title = filled(tr("Placement", "%1 %2–%3"), family_name(card.family), first, last)
    return Row(
        (_RANK[card.family], first, False, ""),
        run,
        True,
        title,
        _group_detail(run, n_ctx),
        bytes_text(sum(one.nbytes for one in run)),
        expanded,
    )


def _group_detail(run: tuple[Card, ...], n_ctx: int) -> str:
    over = {card.nodes for card in run}
    if len(over) == 1 and (nodes := next(iter(over))):
        return f"{cards_text(len(run))} · {nodes_text(nodes)}"
    if run[0].family == "experts":
        return filled(tr("Placement", "%1 layers, %2 experts each"), len(run), run[0].n_experts)
    formats = _formats(run)
    if run[0].family == "kv" and n_ctx:
        formats = filled(tr("Placement", "%1 tokens, %2"), short_count(n_ctx), formats)
    return f"{cards_text(len(run))} · {formats}" if formats else cards_text(len(run))


def _formats(run: Sequence[Card]) -> str:
    """The type of most cards; whether there are others."""
    names = [card.formats.partition(",")[0] for card in run if card.formats]
    if not names:
        return ""
    most = max(dict.fromkeys(names), key=names.count)
    return most if len(set(names)) == 1 else filled(tr("Placement", "%1 and others"), most)


def _card_row(card: Card, *, inside: bool) -> Row:
    size = bytes_text(card.nbytes)
    if card.n_hot and card.family == "experts":
        size = filled(tr("Placement", "%1 of %2"), bytes_text(card.hot_bytes).partition(" ")[0], size)
    detail = _formats((card,))
    if card.family == "hot":
        title = filled(tr("Placement", "Hottest %1 of %2, layer %3"), card.n_hot, card.n_experts, card.layer)
    else:
        title = filled(tr("Placement", "Layer %1"), card.layer) if inside else card.label
    if card.nodes:
        if card.heat:  # whose strip takes the place of the second line; there is little room beside the title
            title = f"{title} · {filled(tr('Placement', 'N%1'), '+'.join(map(str, card.nodes)))}"
        else:
            detail = f"{detail} · {nodes_text(card.nodes)}" if detail else nodes_text(card.nodes)
    return Row(key_of(card), (card,), False, title, detail, size, inside=inside)
