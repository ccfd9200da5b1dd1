/* Writing a model's tensors, also by several ranks. */
#ifndef ARES_MODEL_SAVE_H
#define ARES_MODEL_SAVE_H

#include "pieces.h"

/* A file with tensors of parameters [first, end); path NULL: none, only the sum is made. */
typedef struct save_file {
    const char *path;
    int first, end;
    piece_kind kinds[3];
    int n_kinds;
    ares_dtype dtype;
} save_file;
save_file save_weights(const ares_model *m, const char *path); /* of all parameters */
save_file save_states(const ares_model *m, const char *path);
/*
 * A collective of by's ranks (NULL: this process alone), unless it fails with ARES_EDIST. Another
 * failure is this rank's own. *sum grows by what this rank has written contributes to the
 * fingerprint.
 */
int save_tensors(const ares_model *m, const save_file *f, const ares_writers *by, uint64_t *sum);
/* A collective: the first failure of any rank, or *sum over all ranks. */
int save_agree(const ares_writers *by, int rc, uint64_t *sum);
/* The tensor of that kind in a file; NULL: absent. */
const ares_tensor_info *save_find(const ares_safetensors *s, const ares_param *p, piece_kind kind);
#endif
