#ifndef ARES_CORE_LAST_WORDS_H
#define ARES_CORE_LAST_WORDS_H

/* An error in the log (log.c) that takes no memory: there is none. Cut at 500 bytes. */
void log_last_words(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
