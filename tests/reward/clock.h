/*
 * A clock for users' processes that a test controls: when a program that hangs creates the file
 * named here, the time-out of the wait for it passes at once, however long it is. So a busy machine
 * makes nobody late, and no test waits.
 */
#ifndef TESTS_REWARD_CLOCK_H
#define TESTS_REWARD_CLOCK_H

/*
 * NULL: no such file. The file is removed when its time-out has passed; remove it too before the
 * program is started again.
 */
void clock_hang_file(const char *path);
/*
 * The same for a program that is only slow: when its file exists, this many seconds pass, and the
 * wait goes on. NULL: none.
 */
void clock_slow_file(const char *path, double seconds);
#endif
