/* Runs of VAPOR: a model that writes tags, and rows with stored pairs. */
#ifndef TESTS_VAPOR_RUNS_H
#define TESTS_VAPOR_RUNS_H

/*
 * The model of e2e_model, trained for a second to write <N>digit</N><S>word</S>, with five digits
 * and two words that are all likely; made in this test's folder.
 */
const char *vapor_model(void);
/* Four questions whose digit is 3; the pairs of all but the last prefer "yes". */
const char *vapor_rows(void);

#endif
