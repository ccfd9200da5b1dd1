#ifndef ARES_CORE_PROGRESS_H
#define ARES_CORE_PROGRESS_H

#include <stdbool.h>

/*
 * Whoever writes to the terminal holds it meanwhile, and erases its last line first where that is
 * the one that moves; core_terminal_line tells so once.
 */
void core_terminal_take(void);
bool core_terminal_line(void);
void core_terminal_give(void);

/* What the thread of a progress does now and then: draws the line, or logs it where it is due. */
struct ares_progress;
void core_progress_tick(struct ares_progress *p, double now);

#endif
