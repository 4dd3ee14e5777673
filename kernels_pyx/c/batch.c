// Whether a step fits a program: the ops trust what is asked here.
#include "parts.h"

// Every sequence has one run of rows, and nobody writes a slot that another reads or writes.
static const char *check_states(const ld_program *p, const ld_step_state *s) {
    if (!s->states) return "a model with states was given none";
    for (int64_t r = 1; r < s->n_rows; r++)
        if (s->seq_of_row[r] == s->seq_of_row[r - 1] ? s->positions[r] != s->positions[r - 1] + 1
                                                    : s->seq_of_row[r] < s->seq_of_row[r - 1])
            return "the rows of a sequence are not in order";
    for (int64_t r = 0; r < s->n_rows; r++) {
        if (r && s->seq_of_row[r] == s->seq_of_row[r - 1]) continue;
        int64_t seq = s->seq_of_row[r], n = 1;
        const int32_t *use = s->states + 4 * seq;
        while (r + n < s->n_rows && s->seq_of_row[r + n] == seq) n++;
        int reads = s->positions[r] > 0;
        if ((reads && (use[0] < 0 || use[0] >= p->n_states)) || use[1] < 0 || use[1] >= p->n_states || use[2] >= p->n_states)
            return "a state slot is out of range";
        if (use[2] >= 0 && (use[3] < 1 || use[3] > n || use[2] == use[1])) return "a state is wanted that the step does not reach";
        for (int64_t other = 0; other < s->n_seqs; other++) {
            const int32_t *theirs = s->states + 4 * other;
            for (int i = 1; i < 3; i++)
                if (use[i] >= 0 && (use[i] == theirs[0] || (other != seq && (use[i] == theirs[1] || use[i] == theirs[2]))))
                    return "a state slot is written that is still needed";
        }
    }
    return NULL;
}

const char *ld_program_check(const ld_program *p, const ld_step_state *s) {
    if (s->n_rows < 1 || s->n_rows > p->max_rows) return "the number of rows does not fit the program";
    if (s->n_out < 0 || s->n_out > p->max_rows || s->n_seqs < 1) return "the number of wanted rows or sequences is wrong";
    if (s->n_groups != p->n_groups) return "the number of cache groups is wrong";
    if (s->first < 0 || s->first > s->end || s->end > p->n_ops) return "there are no such ops";
    if (s->handoff && s->handoff->n_flags < p->n_flags) return "the handoff has too few flags";
    if (s->handoff && ld_handoff_load(s->handoff, -1)) return "the handoff was stopped and not reset";
    for (int64_t r = 0; r < s->n_rows; r++) {
        if (s->token_ids[r] < 0 || s->token_ids[r] >= p->n_vocab) return "a token id is out of range";
        if (s->positions[r] < 0 || s->positions[r] >= p->max_position) return "a position is beyond the context";
        if (s->seq_of_row[r] < 0 || s->seq_of_row[r] >= s->n_seqs) return "a row belongs to no sequence";
        if (s->positions[r] / LD_BLOCK >= s->table_stride) return "a block table is too short";
        int64_t last = s->positions[r] / LD_BLOCK;
        if (r && s->seq_of_row[r] == s->seq_of_row[r - 1] && s->positions[r] > s->positions[r - 1] &&
            s->positions[r - 1] / LD_BLOCK == last)
            continue; // seen just now
        for (int64_t g = 0; g < p->n_groups; g++) {
            const int32_t *table = ld_blocks_of(s, g, r);
            for (int64_t b = p->window[g] < 0 ? last + 1 : ld_first_block(p->window[g], s->positions[r]); b <= last; b++)
                if (table[b] < 0 || table[b] >= p->n_blocks[g]) return "a block id is out of range";
        }
    }
    for (int64_t i = 0; i < s->n_out; i++)
        if (s->out_rows[i] < 0 || s->out_rows[i] >= s->n_rows) return "a wanted row is not in the batch";
    return p->n_states ? check_states(p, s) : NULL;
}
