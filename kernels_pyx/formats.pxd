cdef extern from "dispatch.h":
    ctypedef enum ld_act:
        LD_ACT_F32
        LD_ACT_Q8_32
        LD_ACT_Q8_256
        LD_N_ACTS
