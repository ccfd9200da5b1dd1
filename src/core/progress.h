#ifndef ARES_CORE_PROGRESS_H
#define ARES_CORE_PROGRESS_H

#include <stdatomic.h>

/* 1 while the last line of the terminal is a progress bar, which a log line must erase first. */
extern _Atomic int core_bar_shown;

#endif
