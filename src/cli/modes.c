/* Modes that need no mpirun: each prints one text. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "config.h"
#include "base/out.h"
#include "base/launched.h"
#include "report/confusion.h"
#include "cluster/log.h"
#include "cluster/world.h"
#include "report/output_paths.h"
#include "report/reporter.h"
#include "report/setup_progress.h"
#include "report/data_report.h"
#include "report/scores.h"
#include "train/setup.h"
#include "cluster/cores.h"
#include "train/sequencer.h"
#include "train/memory.h"
#include "train/ckpt_writer.h"
#include "train/weights.h"
#include "cli/show_batch.h"
#include "cli/show_tokens.h"
#include "cli/write_onnx.h"
#include "service/http.h"
#include "cli/compare.h"
#include "cli/init.h"
#include "cli/modes.h"
#include "data/image_list.h"
#include "exec/exec.h"
#include "job/job.h"
#include "job/search.h"
#include "job/freeze_savings.h"
#include "optim/optim.h"
#include "plan/cost.h"
#include "plan/part.h"
#include "plan/render.h"
#include "transport/tp.h"

static int print(const struct text *t, struct err *e)
{
    bool bad = t->n && fwrite(t->s, 1, t->n, stdout) != t->n;
    if (fflush(stdout) || bad) return err_set(e, E_IO, "standard output: %s", strerror(errno));
    return 0;
}

static void add_json(struct text *out, char *json)
{
    text_add(out, "%s\n", json);
    free(json);
}

static void version_text(struct text *out)
{
    text_add(out, "mpstaged %s\nMPI: %s\n", PACKAGE_VERSION, world_mpi_library());
    for (int i = 0; be_list[i]; i++) {
        struct device d = {0};
        struct err none = {0};
        if (be_list[i]->describe(0, &d, &none) == 0)
            text_add(out, "backend %s: %s%s%s %s%s%s\n", be_list[i]->name, d.library, *d.beside ? ", " : "",
                     d.beside, d.isa, d.bf16 ? ", bf16 by " : "",
                     d.bf16_slow ? "fp32" : d.bf16 ? d.bf16 : "");
        else text_add(out, "backend %s: built in, but %s\n", be_list[i]->name, none.text);
    }
    for (int i = 0; tp_list[i]; i++) {
        struct text name = {0}, wrong = {0};
        if (tp_list[i]->library) tp_list[i]->library(&name, &wrong);
        if (name.n) text_add(out, "transport %s: %s\n", tp_list[i]->name, name.s);
        if (wrong.n) text_add(out, "warning: %s\n", wrong.s);
        text_free(&name);
        text_free(&wrong);
    }
}

/* Bytes of optimizer state of a pipeline; if it is sharded, of the one that has most. */
static uint64_t optimizer_bytes(const struct placement *pl)
{
    uint64_t most = 0;
    for (int k = 0; k < pl->mesh.size[AXIS_DP]; k++) {
        uint64_t sum = 0;
        for (int i = 0; i < pl->n_state; i++)
            if (pl->state[i].kind == STATE_OPTIMIZER && shard_has(pl->state[i].shard, (struct mesh_coord){{0, k}}))
                sum += state_plain_bytes(&pl->state[i]);
        if (sum > most) most = sum;
    }
    return most;
}

/* Adds up what training stores, from the rows of the registry. */
static void state_sums(const struct placement *pl, struct summary_run *r)
{
    const struct state_row *row = pl->state;
    int n = pl->n_state;
    r->parameters = state_bytes(row, n, STATE_WEIGHT, false);
    r->statistics = state_bytes(row, n, STATE_STATISTIC, false) + state_bytes(row, n, STATE_COUNTER, false);
    r->gradients = state_bytes(row, n, STATE_WEIGHT, true);
    r->buffers = optimizer_bytes(pl) + state_bytes(row, n, STATE_AVERAGE, true);
}

static int summary_text(const struct opts *o, struct job *j, struct text *out, struct err *e)
{
    int *stage_of = mem_alloc((size_t)j->graph->n_nodes * sizeof *stage_of + 1);
    const struct conf *c = j->conf;
    struct summary_run r = {
        .stage_of = stage_of, .precision = conf_word(c, "train.precision"),
        .optimizer = conf_word(c, "train.optimizer"),
    };
    state_sums(j->pl, &r);
    int bad = job_stage_of(j, stage_of, e);
    if (!bad && o->json) add_json(out, graph_summary_json(j->graph, &r));
    else if (!bad) graph_summary(j->graph, &r, text_output_columns(), out);
    free(stage_of);
    return bad;
}

static const struct plan *shown_plan(const struct job *j)
{
    for (int k = 0; k < PLAN_KINDS; k++) if (j->plan_of[k] >= 0) return j->plan[j->plan_of[k]];
    return NULL;
}

static int modes_draw(const struct opts *o, const struct conf *c, const struct plan *p, const struct cost *k,
                struct text *out, struct err *e)
{
    struct text file = {0};
    if (strcmp(o->picture, "-") == 0) {
        const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
        bool colour = isatty(STDOUT_FILENO) && !(no && *no) && term && strcmp(term, "dumb") != 0;
        plan_draw_text(p, k, text_output_columns(), colour, out);
        return 0;
    }
    if (text_ends(o->picture, ".svg")) plan_draw_svg(p, k, &file);
    else add_json(&file, plan_draw_json(p, k));
    int bad =
        output_paths_spare(c, "--draw-schedule", o->picture, e) || out_file_named(o->picture, &file, false, e) ? -1 : 0;
    text_free(&file);
    return bad;
}

static void mirrors_text(const struct job *j, struct text *out)
{
    uint64_t most = 0;
    char buf[32];
    for (int i = 0; i < job_world(j); i++)
        if (save_staging_bytes(j, i) > most) most = save_staging_bytes(j, i);
    if (!most || !conf_saves(j->conf)) return;       /* otherwise a copy is made only on request */
    text_add(out, "checkpoints keep a copy of the state on the host: at most %s a rank\n", text_bytes(most, buf));
}

/* Memory for reading: each: of a thread; shared: of all threads. For some formats only the files determine it, and they
 * need not exist where a plan is made. */
static int files_memory(const struct job *j, size_t *each, size_t *shared, struct err *e)
{
    const struct ds_kind *k = ds_kind_of(j->conf);
    if (!k) return 0;
    *each = k->kept;
    for (int part = DS_TRAIN; part <= DS_TEST && k->held; part++) {
        struct ds *d = NULL;
        if (part == DS_TRAIN && j->conf->run.evaluate) continue;
        if (ds_open(j->conf, (enum ds_part)part, j->graph, &d, e)) return -1;
        if (d && d->each > *each) *each = d->each;
        *shared += d ? d->shared : 0;
        ds_close(d);
    }
    return 0;
}

static void feeds_text(const struct job *j, struct text *out)
{
    size_t most = 0, each = 0, shared = 0;
    struct err why = {0};
    char buf[32];
    for (int i = 0; i < j->mesh.size[AXIS_PP]; i++) {
        size_t bytes = exec_feed_bytes(j->conf, j->plan, j->n_plans, i);
        if (bytes > most) most = bytes;
    }
    const int bad = files_memory(j, &each, &shared, &why);
    text_add(out, "samples that are read ahead take at most %s of the host's memory a rank\n", text_bytes(most, buf));
    if (each) text_add(out, "  and decoding up to %s more", text_bytes(each, buf));
    if (each && j->conf->data.workers > 1) text_add(out, " in each of %d workers", (int)j->conf->data.workers);
    if (each) text_add(out, "\n");
    if (shared) text_add(out, "  and what is kept of files up to %s, in each process that reads\n",
                         text_bytes(shared, buf));
    if (bad) text_add(out, "  and what reading takes besides, which only the files say:\n    %s\n", why.text);
}

/* The caches and the second copy of the weights. */
static void interim_text(const struct job *j, struct text *out)
{
    uint64_t most = 0;
    char buf[32];
    for (int i = 0; j->interim && i < j->interim->mesh.size[AXIS_PP]; i++)
        if (limit_bytes(j->interim, i) > most) most = limit_bytes(j->interim, i);
    if (most) text_add(out, "texts of generate.every_steps take at most %s more a rank\n", text_bytes(most, buf));
}

/* This host's memory for the ranks, which are all here unless a launcher reports otherwise. --check-config refuses a
 * run that would not fit. So does --plan, unless pipeline.max_memory gives the machine's memory. */
static void memory_find(const struct opts *o, struct job *j, struct memory *m)
{
    struct memory_info *w = mem_alloc(sizeof *w);
    bool own = launched_any() || j->conf->run.transport == TRANSPORT_mpi, check = o->mode == MODE_CHECK_CONFIG;
    bool plans = o->mode == MODE_PLAN || o->mode == MODE_SEARCH;
    size_t each = 0, shared = 0;
    struct err none = {0};
    memory_read("", (int)j->conf->run.threads * (own ? 1 : part_rank_count(j->conf)), w);
    memory_make(w, 1, !own, m);
    memory_all(m, launched_here(), own);
    memory_reads(m, j);
    if (plans && !files_memory(j, &each, &shared, &none)) memory_reads_add(m, j, each, shared);
    m->host.elsewhere = !check;
    m->host.advisory = !check && !(plans && !j->conf->pipeline.max_memory.n);
    j->host = &m->host;
}

/* Adds a note if what a rank needs besides weights exceeds the limit that its device map observes. */
static void map_text(const struct job *j, struct text *out)
{
    uint64_t need, limit;
    char b[2][32];
    const int rank = j->map && j->map->bytes ? limit_worst_rank(j, &need, &limit, NULL) : -1;
    if (rank >= 0)
        text_add(out, "note: a device map counts weights only: with all else rank %d needs %s,\n  more than its %s\n",
                 rank, text_bytes(need, b[0]), text_bytes(limit, b[1]));
}

/* Adds a note if --plan is for another machine. */
static void memory_text(const struct job *j, struct text *out)
{
    uint64_t need;
    char b[2][32];
    const struct fit_pool *p = j->host && j->host->advisory ? limit_pool_short(j, false, &need) : NULL;
    if (p)
        text_add(out, "note: this machine is too small: ranks here would need %s,\n  more than the %s of %s\n",
                 text_bytes(need, b[0]), text_bytes(p->bytes, b[1]), p->name);
    memory_notes(j, out);
}

static int plan_text(const struct opts *o, struct job *j, struct text *out, struct err *e)
{
    const struct plan *p = shown_plan(j);
    if (!p) return err_set(e, E_CONF, "%s: nothing to plan: no samples to evaluate", j->conf->file);
    if (o->mode == MODE_PRINT_SCHEDULE) plan_draw_text(p, j->cost, text_output_columns(), false, out);
    else if (o->mode == MODE_DRAW_SCHEDULE) return modes_draw(o, j->conf, p, j->cost, out, e);
    else if (o->json) add_json(out, plan_json(p, j->cost, j->map));
    else {
        plan_table(p, j->cost, j->map, text_output_columns(), out);
        feeds_text(j, out);
        mirrors_text(j, out);
        interim_text(j, out);
        map_text(j, out);
        memory_text(j, out);
        return freeze_savings_text(j, out, e);
    }
    return 0;
}

/* Checks that the file can be made before it reads all samples. */
static int batch_text(const struct opts *o, struct job *j, struct text *out, struct err *e)
{
    struct text file = {0}, said = {0};
    int bad = output_paths_spare(j->conf, "--show-batch", o->picture, e) ||
              (text_ends(o->picture, ".txt") ? show_tokens : show_batch)(j, &file, &said, e) ||
              out_file_named(o->picture, &file, false, e);
    if (!bad) data_report_warnings(j, out);
    if (!bad) text_add(out, "%s: %s", o->picture, said.s);
    text_free(&file);
    text_free(&said);
    return bad ? -1 : 0;
}

static int weights_check(const struct job *j, struct text *out, struct err *e)
{
    const char *from = j->conf->run.init_from;
    struct weights_begin q = {j->conf, j->pl, NULL, true, .digest = NULL};
    char base[33];
    if (!(from && *from) && !conf_adapts(j->conf)) return 0;
    if (j->conf->lora.init_from) q.digest = mem_alloc((size_t)j->pl->n_state * sizeof *q.digest + 1);
    int bad = weights_init(&q, NULL, out, e);
    if (!bad && q.digest) {
        weights_base_digest(j->conf, j->pl, q.digest, base);
        bad = weights_base_check(j->conf, q.adapts_to, base, e);
    }
    free(q.digest);
    return bad;
}

/* Checks the folder for weights and optimizer state, if some would lie there. */
static int disk_check(const struct job *j, struct err *e)
{
    struct text path = {0};
    struct out_place at = OUT_NOWHERE;
    int bad = 0;
    bool files = false;
    for (int r = 0; r < j->mesh.size[AXIS_PP]; r++) files |= j->pl->outside_bytes[r] > j->pl->host_bytes[r];
    if (!files) return 0;
    text_add(&path, "%s/rank-0", j->conf->pipeline.disk);
    if (out_place(path.s, &at, e)) bad = err_where(e, "pipeline.disk");
    out_place_free(&at);
    text_free(&path);
    return bad;
}

static int check_end(const struct job *j, struct text *out, struct err *e)
{
    if (disk_check(j, e) || weights_check(j, out, e)) return -1;
    data_report_warnings(j, out);
    job_notes(j, out);
    text_add(out, "configuration OK\n");
    return 0;
}

static int address_check(const char *address, struct err *e)
{
    int fd;
    if (!address) return 0;
    if (http_bind(address, NULL, &fd, e)) return -1;
    close(fd);
    return 0;
}

/* Checks output files. Results of an earlier run are no error of the configuration. */
static int outputs_check(const struct conf *c, struct err *e)
{
    const struct rundir none = RUNDIR_NONE;
    if (address_check(c->service.metrics, e) || reporters_check(reporter_list, &none, c, e)) return -1;
    return rundir_inspect(c, c->run.evaluate ? RUNDIR_EVALUATE : RUNDIR_TRAIN, e) || output_paths_check(NULL, c, e) ?
        -1 : 0;
}

/* Checks that the file of a search can be made, because a search takes long. */
static int write_check(const char *file, struct err *e)
{
    struct out_place p;
    struct stat st;
    if (out_place(file, &p, e)) return -1;
    int bad = out_stat(&p, &st, e);
    out_place_free(&p);
    return bad || !st.st_nlink ? bad : err_set(e, E_CANTCREAT, "%s: %s", file, strerror(EEXIST));
}

static void search_report(void *to, int done, int all) { setup_progress_count(to, done, all); }

static int search_text(const struct opts *o, int n_ranks, struct job *j, struct ready *r, struct text *out,
                       struct err *e)
{
    struct text file = {0};
    struct core_info here;
    cores_read(launched_any(), &here);
    struct search_request q = {.n_ranks = n_ranks, .cores = here.allowed, .file = o->write_config, .json = o->json,
                               .best = o->write_config ? &file : NULL, .tell = search_report, .to = r};
    int bad = (o->write_config && write_check(o->write_config, e)) || search_run(j, &q, out, e) ||
              (o->write_config && out_file_named(o->write_config, &file, true, e));
    text_free(&file);
    return bad ? -1 : 0;
}

/* Looks at some pictures. A list may name missing files; a run reports each when it reads it. */
static int pictures_check(const struct job *j, struct err *e)
{
    const struct conf *c = j->conf;
    const char *path[] = {[DS_TRAIN] = c->data.train, [DS_TEST] = c->data.test};
    const int64_t used[] = {[DS_TRAIN] = c->data.samples, [DS_TEST] = c->data.test_samples};
    int bad = 0;
    for (int i = DS_TRAIN; i <= DS_TEST && !bad && c->data.source == SOURCE_images; i++) {
        struct image_list l = {0};
        if (!j->data[i] || !path[i]) continue;
        bad = image_list_read(path[i], false, NULL, &l, e);
        if (!l.folder && used[i] && l.image.n > used[i]) l.image.n = (int)used[i];
        image_list_spread(&l, (uint64_t)used[i]);
        bad = bad || image_list_check(&l, c->data.damaged == DAMAGED_SKIP && !c->run.predict, e);
        image_list_free(&l);
    }
    return bad ? -1 : 0;
}

/* All modes that need the network. Of those that plan, only --check-config opens data: it does everything that a run
 * does without creating files. Without data --plan of an evaluation or of predictions is that of a full batch, and the
 * other modes take the plans for training. */
static int network_text(const struct opts *o, int n_ranks, const struct conf *given, struct ready *r, struct text *out,
                        struct err *e)
{
    bool check = o->mode == MODE_CHECK_CONFIG;
    struct conf *c = conf_copy(given);
    struct job j = {.conf = c, .supposes = !check};
    struct memory memory = {0};
    c->run.evaluate = c->run.evaluate && (check || o->mode == MODE_PLAN);
    if (!check && c->run.evaluate) j.count[DS_TEST] = (uint64_t)c->train.evaluate_batch_size;
    if (!check) c->run.predict = c->run.generate = NULL;
    setup_progress_now(r, "reading the network");
    int bad = (check && outputs_check(c, e)) || job_device(&j, e) || job_model(&j, e);
    if (check || o->mode == MODE_SHOW_BATCH) setup_progress_now(r, "reading data");
    bad = bad || (check && (job_data(&j, e) || pictures_check(&j, e) || scores_check(&j, e) || confusion_check(&j, e)));
    if (!bad) memory_find(o, &j, &memory);
    if (o->mode != MODE_SHOW_BATCH) setup_progress_now(r, o->mode == MODE_SEARCH ? "searching" : "planning");
    if (!bad && o->mode == MODE_PRINT_GRAPH) graph_print(j.graph, out);
    else if (!bad && o->mode == MODE_SHOW_BATCH) bad = batch_text(o, &j, out, e);
    else if (!bad) {
        bad = o->mode == MODE_SEARCH ? search_text(o, n_ranks, &j, r, out, e) : job_plan(&j, n_ranks, e);
        if (bad || o->mode == MODE_SEARCH) goto out;
        if (check) bad = check_end(&j, out, e);
        else if (o->mode == MODE_SUMMARY) bad = summary_text(o, &j, out, e);
        else bad = plan_text(o, &j, out, e);
    }
out:
    memory_free(&memory);
    job_free(&j);
    return bad ? -1 : 0;
}

/* Does the same, with a progress line if it takes long. */
static int network_report(const struct opts *o, int n_ranks, const struct conf *c, struct text *out, struct err *e)
{
    enum { DELAY_S = 2 };
    struct terminal screen;
    terminal_open(&screen, when_sign(c->service.progress), launched_any());
    log_columns(terminal_columns(&screen));
    struct ready *r = setup_progress_begin(&screen, DELAY_S, NULL);
    int bad = network_text(o, n_ranks, c, r, out, e);
    setup_progress_end(r);
    terminal_close(&screen);
    return bad;
}

static int conf_text(const struct opts *o, int n_ranks, struct text *out, struct err *e)
{
    struct conf *c = conf_load(o->config, e);
    if (!c) return -1;
    int bad = opts_apply(o, c, e) || conf_expand(c, getenv, e);
    if (!bad && o->mode == MODE_PRINT_CONFIG) {
        if (o->json) add_json(out, conf_json(c));
        else conf_print(c, out);
    } else if (!bad && o->mode == MODE_WRITE_ONNX) bad = write_onnx(c, o->picture, out, e) ? conf_where(c, e) : 0;
    else if (!bad) bad = network_report(o, n_ranks, c, out, e) ? conf_where(c, e) : 0;
    conf_free(c);
    return bad;
}

int mode_run(const struct opts *o, int n_ranks, struct err *e)
{
    struct text out = {0};
    int bad = 0, code = 0;
    switch (o->mode) {
    case MODE_HELP: opts_help(text_output_columns(), &out); break;
    case MODE_VERSION: version_text(&out); break;
    case MODE_INIT_LM: bad = init_lm_write(o->folder, o->write_config, &out, e); break;
    case MODE_COMPARE: bad = compare_runs(o->run, o->json, &out, &code, e); break;
    case MODE_INIT: bad = init_write(o->folder, o->write_config, &out, e); break;
    default: bad = conf_text(o, n_ranks, &out, e);
    }
    if (!bad) bad = print(&out, e);
    text_free(&out);
    return bad ? e->code : code;
}
