/* Predictions of volumes (run.predict = FOLDER/). For each test volume: a NIfTI file of labels on the voxels of its
 * input file. montage.png: a slice of each volume with the outlines of the prediction and, if known, of the truth.
 * scores.csv, if the truth is known: counts of voxels. The folder gets its name when it is complete. Rank 0; the
 * executor's thread. */
#ifndef REPORT_LABEL_MAPS_H
#define REPORT_LABEL_MAPS_H
#include <stdatomic.h>
#include "base/out.h"
#include "job/job.h"

struct label_maps;
/* at, stop: as for predict_open. 78 if samples are no volumes or the network's output is no map of their size; 73, 74.
 * label_maps_free must be called also after a failure. */
int label_maps_open(const struct job *j, const struct out_place *at, const atomic_int *stop, struct label_maps **out,
                    struct err *e);
/* Takes the output for a sample: classes x the sample's three axes. The label is the class of the greatest value, of
 * equal ones the lowest. For a single channel the label is 1 from 0.5 on, or from 0 on if the loss applies its sigmoid.
 * Samples come in order. 65, 66, 73, 74, 75. */
int label_maps_add(struct label_maps *m, const float *x, uint64_t sample, struct err *e);
int label_maps_commit(struct label_maps *m, struct err *e);   /* after the last one: 73, 74 */
void label_maps_free(struct label_maps *m);              /* without commit removes the files; m may be NULL */

/* Counts of a class among n voxels, added to the previous ones; and its line of scores.csv, with Dice = 2 tp / (2 tp +
 * fp + fn), empty for a class that the truth does not have. */
struct label_score { uint64_t truth, guess, both; };
void label_score_add(struct label_score *s, int class, const uint8_t *truth, const uint8_t *guess, uint64_t n);
void label_score_line(const struct label_score *s, const char *volume, const char *class, struct text *out);
#endif
