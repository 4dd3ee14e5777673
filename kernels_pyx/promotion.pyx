"""What a decoded token does to the scores of experts, and which of those it missed deserve a slot: `engine.runtime.promotion`."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

DEF MOST = 8


@cython.boundscheck(False)
@cython.wraparound(False)
def saw(
    const int64_t[:, ::1] ids not None,
    const int32_t[:, ::1] slot_of not None,
    const int32_t[:, ::1] still not None,
    double[:, ::1] scores not None,
    double gain,
    int64_t[:, ::1] missed not None,
    int64_t[::1] hits not None,
):
    """Adds `gain` to the scores of what a token chose, ids [n_layers, n_used], -1: no choice.

    missed, [n_layers, n_used]: what has no slot, else -1; hits, [n_layers]: of what has one. (all hits, how many of the ids have
    one in `still`).

    Raises:
        ValueError: shapes that do not belong together. IndexError: an id beyond the experts.
    """
    cdef Py_ssize_t n = ids.shape[0], used = ids.shape[1], n_experts = scores.shape[1], layer, i
    cdef int64_t one, all_hits = 0, all_still = 0
    if n != slot_of.shape[0] or n != still.shape[0] or n != scores.shape[0] or n != missed.shape[0] or n != hits.shape[0]:
        raise ValueError("tables of different numbers of layers")
    if missed.shape[1] != used or slot_of.shape[1] != n_experts or still.shape[1] != n_experts:
        raise ValueError("tables of different widths")
    for layer in range(n):
        for i in range(used):
            if ids[layer, i] >= n_experts:
                raise IndexError(f"expert {ids[layer, i]} of {n_experts}")
    for layer in range(n):
        hits[layer] = 0
        for i in range(used):
            one = ids[layer, i]
            missed[layer, i] = -1
            if one < 0:
                continue
            scores[layer, one] += gain
            all_still += still[layer, one] >= 0
            if slot_of[layer, one] >= 0:
                hits[layer] += 1
            else:
                missed[layer, i] = one
        all_hits += hits[layer]
    return all_hits, all_still


@cython.boundscheck(False)
@cython.wraparound(False)
def wishes(
    const int64_t[:, ::1] missed not None,
    const double[:, ::1] scores not None,
    const int64_t[:, ::1] held not None,
    const uint8_t[:, ::1] free not None,
    double margin,
    int most,
):
    """(gain, layer, expert, slot) of up to `most` missed experts a layer whose score is more than `margin` times the lowest held.

    held, [n_layers, n_slots]: what lies in each slot, -1: nothing, which any takes; free: the slots that may be taken.

    Raises:
        ValueError: shapes that do not belong together, or more than 8 a layer.
    """
    cdef Py_ssize_t n = missed.shape[0], used = missed.shape[1], width = held.shape[1], layer, i
    cdef Py_ssize_t best, worst
    cdef int turn, k
    cdef bint taken
    cdef double high, low, score
    cdef Py_ssize_t bests[MOST]
    cdef Py_ssize_t worsts[MOST]
    if n != scores.shape[0] or n != held.shape[0] or n != free.shape[0] or free.shape[1] != width or most > MOST:
        raise ValueError("tables that do not belong together")
    found = []
    for layer in range(n):
        for turn in range(most):
            best = worst = -1
            high = low = 0.0
            for i in range(used):
                taken = missed[layer, i] < 0
                for k in range(turn):
                    taken = taken or bests[k] == i
                if not taken and (best < 0 or scores[layer, missed[layer, i]] > high):
                    best, high = i, scores[layer, missed[layer, i]]
            if best < 0:
                break
            for i in range(width):
                taken = not free[layer, i]
                for k in range(turn):
                    taken = taken or worsts[k] == i
                if taken:
                    continue
                score = scores[layer, held[layer, i]] if held[layer, i] >= 0 else -1.0
                if worst < 0 or score < low:
                    worst, low = i, score
            if worst < 0:
                break
            bests[turn], worsts[turn] = best, worst
            if high - margin * low > 0:
                found.append((high - margin * low, layer, missed[layer, best], worst))
    return found
