#include "board.h"

#include <string.h>

void board_render(const char *format, const void *env, board_part *grid, board_part *coordinates,
                  ares_str *out)
{
    bool both = strcmp(format, "grid_coord") == 0;
    if (both) ares_str_add_z(out, "Coordinates: \n");
    if (both || strcmp(format, "coord") == 0) coordinates(env, out);
    if (both) ares_str_add_z(out, "\nGrid Map: \n");
    if (both || strcmp(format, "grid") == 0) grid(env, out);
}

void board_add_size(ares_str *out, int rows, int cols)
{
    ares_str_addf(out, "Board size: %d rows x %d cols (zero-indexed).", rows, cols);
}

void board_add_cells(ares_str *out, const char *label, const int *cells, int n, int cols)
{
    for (int i = 0; i < n; i++) {
        if (i == 0) ares_str_addf(out, "\n%s: ", label);
        ares_str_addf(out, "%s(%d, %d)", i ? ", " : "", cells[i] / cols, cells[i] % cols);
    }
}
