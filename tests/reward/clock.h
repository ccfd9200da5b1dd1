/*
 * A clock for users' processes that moves when the test says so: a program that hangs makes the
 * file named here, and only then the wait for it, however long its time-out, is over at once. A
 * busy machine makes nobody late, and nothing waits.
 */
#ifndef TESTS_REWARD_CLOCK_H
#define TESTS_REWARD_CLOCK_H

/*
 * NULL: no such file. It is removed when its time-out has passed; remove it also before the program
 * is started again.
 */
void clock_hang_file(const char *path);
/* The same for a program that is only slow: so many seconds pass when its file is there, and the
 * wait goes on. NULL: none. */
void clock_slow_file(const char *path, double seconds);
#endif
