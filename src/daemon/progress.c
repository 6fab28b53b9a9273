/* Progress for people. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "daemon/log.h"
#include "daemon/progress.h"

/* Only standard error says whether a person looks: under mpirun standard output always claims to be a terminal,
 * standard error never does. */
static bool on_terminal(const struct conf *c)
{
    const char *term = getenv("TERM");
    if (strcmp(c->service.progress, "yes") == 0) return true;
    if (strcmp(c->service.progress, "no") == 0) return false;
    return isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

void progress_begin(struct progress *p, const struct job *j, uint64_t steps)
{
    *p = (struct progress){.job = j, .conf = j->conf, .terminal = on_terminal(j->conf), .steps = steps, .began = clock_ns(),
                           .part = mem_alloc((size_t)j->n_stages * ACC_COUNT * sizeof *p->part)};
}

/* What the steps still take; while an evaluation runs, with its rest. */
static double eta_seconds(const struct progress *p)
{
    double eta = 0;
    if (p->step && p->step < p->steps)
        eta = (double)p->seconds_ns * 1e-9 / (double)p->step * (double)(p->steps - p->step);
    if (p->test_done) eta += (double)p->test_ns * 1e-9 / (double)p->test_done * (double)(p->test_all - p->test_done);
    return eta;
}

/* The sign of what is no number means nothing. */
static double shown(double loss) { return isnan(loss) ? fabs(loss) : loss; }

/* After the last step nothing tells how long it takes until the first batch of an evaluation is through. */
static bool eta_known(const struct progress *p) { return p->test_done || (p->step && p->step < p->steps); }

static void step_text(const struct progress *p, char *buf, size_t n)
{
    unsigned eta = (unsigned)eta_seconds(p);
    snprintf(buf, n, "step %llu/%llu  epoch %llu  loss %.5g  accuracy %.3f  %.4g samples/s  ETA %u:%02u:%02u",
             (unsigned long long)p->step,
             (unsigned long long)p->steps, (unsigned long long)p->epoch, shown(p->loss), p->accuracy, p->rate, eta / 3600,
                     eta / 60 % 60, eta % 60);
}

static void progress_text(const struct progress *p, char *buf, size_t n)
{
    unsigned eta = (unsigned)eta_seconds(p);
    if (!p->test_done) step_text(p, buf, n);
    else snprintf(buf, n, "evaluating %llu/%llu samples  ETA %u:%02u:%02u", (unsigned long long)p->test_done,
                  (unsigned long long)p->test_all, eta / 3600, eta / 60 % 60, eta % 60);
}

void progress_step(struct progress *p, const struct result *r, const struct sums *s)
{
    double n = s->samples ? (double)s->samples : 1, seconds = (double)r->ns * 1e-9;
    int64_t every = p->conf->service.log_every;
    p->step = r->o.step;
    p->epoch = r->epoch;
    p->loss = s->loss / n;
    p->accuracy = (double)s->top1 / n;
    p->samples += (uint64_t)s->samples;
    p->seconds_ns += r->ns;
    double now = seconds > 0 ? n / seconds : 0;
    p->step_ns = r->ns;
    for (int i = 0; i < p->job->n_stages; i++) {
        uint64_t *part = p->part + i * ACC_COUNT;
        memcpy(part, r->rep[p->job->pl->rank_of[i]].ns, ACC_COUNT * sizeof *part);
        account_fit(part, r->ns);
    }
    p->rate = p->rate > 0 ? 0.9 * p->rate + 0.1 * now : now;
    p->fresh = true;
    if (p->terminal || every <= 0) return;
    if (p->step % (uint64_t)every && p->step != 1 && p->step != p->steps) return;
    char line[240];
    step_text(p, line, sizeof line);
    log_line("%s", line);
}

void progress_evaluating(struct progress *p, const struct sums *s)
{
    p->test_done = (uint64_t)s->samples;
    p->test_all = p->job->count[DS_TEST];
    p->test_ns = s->ns;
    p->fresh = true;
}

void progress_evaluation(struct progress *p, uint64_t step, const struct sums *s)
{
    double n = s->samples ? (double)s->samples : 1;
    p->tested = true;
    p->fresh = false;
    p->test_done = 0;
    p->test_loss = s->loss / n;
    p->test_accuracy = (double)s->top1 / n;
    log_line("evaluation after step %llu: loss %.5g  accuracy %.4f  top-5 %.4f  of %lld samples",
             (unsigned long long)step, shown(p->test_loss),
             p->test_accuracy, (double)s->top5 / n, (long long)s->samples);
}

void progress_tick(struct progress *p)
{
    char line[240];
    if (!p->terminal || !p->fresh) return;
    p->fresh = false;
    progress_text(p, line, sizeof line);
    log_progress(line);
}

void progress_end(struct progress *p)
{
    char line[240];
    free(p->part);
    p->part = NULL;
    if (!p->terminal || !p->step) return;
    step_text(p, line, sizeof line);
    log_line("%s", line);
}

static json_t *account_json(const struct progress *p)
{
    json_t *all = json_array();
    for (int i = 0; i < p->job->n_stages; i++) {
        json_t *o = json_pack("{s:i}", "stage", i);
        for (int k = 0; k < ACC_COUNT; k++)
            json_object_set_new(o, account_name[k], json_real((double)p->part[i * ACC_COUNT + k] * 1e-9));
        json_array_append_new(all, o);
    }
    return all;
}

void progress_json(const struct progress *p, json_t *o)
{
    json_object_set_new(o, "epoch", json_integer((json_int_t)p->epoch));
    if (p->step && isfinite(p->loss)) json_object_set_new(o, "loss", json_real(p->loss));
    if (p->step) {
        json_object_set_new(o, "accuracy", json_real(p->accuracy));
        json_object_set_new(o, "samples_per_second", json_real(p->rate));
        json_object_set_new(o, "step_seconds", json_real((double)p->step_ns * 1e-9));
        json_object_set_new(o, "account", account_json(p));
    }
    if (eta_known(p)) json_object_set_new(o, "eta_seconds", json_real(floor(eta_seconds(p))));
    if (p->test_done) {
        json_object_set_new(o, "evaluated_samples", json_integer((json_int_t)p->test_done));
        json_object_set_new(o, "evaluation_samples", json_integer((json_int_t)p->test_all));
    }
    if (p->tested) {
        if (isfinite(p->test_loss)) json_object_set_new(o, "test_loss", json_real(p->test_loss));
        json_object_set_new(o, "test_accuracy", json_real(p->test_accuracy));
    }
    json_object_set_new(o, "uptime_seconds", json_real((double)((clock_ns() - p->began) / 1000000) / 1000));
}
