#include "config.h"
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/launched.h"

/* size: variable with the number of ranks (local: on this host). rank: variable with this rank's number; there are more
 * ranks than that number. wants: a variable that must be set, too; unless: one that must not be set. own: it starts
 * ranks of the MPI library that this program is linked with. */
#ifdef WITH_MPICH
enum { OPEN_MPI_OWN = false, MPICH_OWN = true };
#define SLURM_WAY "srun --mpi=pmi2"
#else
enum { OPEN_MPI_OWN = true, MPICH_OWN = false };
#define SLURM_WAY "srun --mpi=pmix"
#endif
static const struct launcher { const char *name, *size, *rank, *wants, *unless, *way; bool own, local; } launchers[] = {
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", .own = OPEN_MPI_OWN},
    {"Slurm's srun", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", SLURM_WAY},
    {"Slurm's srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_PROCID", "SLURM_PTY_PORT", SLURM_WAY},
    {"Hydra (mpiexec of MPICH or Intel MPI)", "PMI_SIZE", "PMI_RANK", .own = MPICH_OWN},
    {"Hydra (mpiexec of MPICH or Intel MPI)", "MPI_LOCALNRANKS", "MPI_LOCALRANKID", .local = true},
    {"Hydra (mpiexec of MPICH or Intel MPI)", NULL, "PMI_ID", "PMI_PORT"},
    {"MVAPICH's mpirun_rsh", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},
    {"MVAPICH's mpirun_rsh", "MVP_COMM_WORLD_SIZE", "MVP_COMM_WORLD_RANK"},
    {"Flux", "FLUX_JOB_SIZE", "FLUX_TASK_RANK", "FLUX_TASK_RANK", NULL, "flux run -o mpi=openmpi"},
    {"jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"},
    {"PALS (mpiexec or aprun of Cray)", "PALS_SIZE", "PALS_RANKID"},
    {"PALS (mpiexec or aprun of Cray)", "PALS_LOCAL_SIZE", "PALS_LOCAL_RANKID", .local = true},
    {"ALPS' aprun", NULL, "ALPS_APP_PE"},
    {"torchrun", "WORLD_SIZE", "RANK", "TORCHELASTIC_RUN_ID"},
    {"a launcher with PMIx", NULL, "PMIX_RANK"},
};

static int count_in(const char *name)
{
    const char *s = name ? getenv(name) : NULL;
    char *end;
    long n = s ? strtol(s, &end, 10) : -1;
    return !s || end == s || *end || n < 0 || n > 1 << 30 ? -1 : (int)n;
}

/* Whether this is a step of srun. Batch scripts and salloc shells have step numbers from 0xfffffff0, or a word. */
static bool is_task(void)
{
    const char *s = getenv("SLURM_STEP_ID");
    char *end;
    return !s || (strtoul(s, &end, 10) < 0xfffffff0ul && end != s && !*end);
}

static int ranks_of(const struct launcher *l)
{
    if ((l->wants && !getenv(l->wants)) || (l->unless && getenv(l->unless))) return 0;
    if (l->size && !strncmp(l->size, "SLURM_", 6) && !is_task()) return 0;
    int size = count_in(l->size), rank = count_in(l->rank);
    return size > rank ? size : rank + 1;
}

static bool has_size(const struct launcher *l) { return count_in(l->size) > count_in(l->rank); }

struct launched_claim launched_claim(void)
{
    struct launched_claim first = {0};
    const size_t count = sizeof launchers / sizeof *launchers;
    for (size_t i = 0; i < 2 * count; i++) {                /* own launchers first */
        const struct launcher *l = &launchers[i % count];
        int n = l->own == (i < count) ? ranks_of(l) : 0;
        if (n <= first.ranks || (first.ranks && n == 1)) continue;
        first = (struct launched_claim){l->name, has_size(l) ? l->size : l->rank, l->way, n, l->own};
        if (l->own || n > 1) break;
    }
    return first;
}

static const char *at_least(const struct launched_claim *c) { return count_in(c->name) == c->ranks ? "" : "at least "; }

int launched_check(const struct launched_claim *c, int ranks, const char *library, struct err *e)
{
    if (c->ranks <= ranks || ranks > 1) return 0;
    return err_set(e, E_CONF, "%s has started %s%d processes (%s), but %s finds one, so each would train alone: "
                   "use %s%sthe mpirun of %s, or unset %s if it is left over", c->launcher, at_least(c), c->ranks,
                   c->name, library, c->way ? c->way : "", c->way ? " or " : "", library, c->name);
}

int launched_once(const char *program, struct err *e)
{
    const struct launched_claim c = launched_claim();
    if (c.ranks < 2) return 0;
    return err_set(e, E_CONF, "%s has started %s%d processes (%s): start %s once, and let it start the ranks; or unset "
                   "%s if it is left over", c.launcher, at_least(&c), c.ranks, c.name, program, c.name);
}

static void outer_report(const char *name, int ranks, struct text *out)
{
    int n = count_in(name);
    if (n > 1 && n != ranks)
        text_add(out, "note: %s is %d, and this run has %d rank%s: assuming that it belongs to an outer job\n", name, n,
                 ranks, ranks == 1 ? "" : "s");
}

void launched_outer(int ranks, struct text *out)
{
    static const char everywhere[] = "SLURM_NTASKS";      /* also set in a shell of salloc and a batch script */
    outer_report(everywhere, ranks, out);
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const struct launcher *l = &launchers[i];
        if (!l->size || !strcmp(l->size, everywhere)) continue;
        if (!l->local && (!l->wants || getenv(l->wants))) outer_report(l->size, ranks, out);
    }
}

/* Variables of launchers that start ranks of this program's MPI library, the innermost first: rank, number of ranks,
 * number of them on this host. */
static const struct place { const char *rank, *size, *here; } places[] = {
#ifndef WITH_MPICH
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
#endif
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
    {"PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_SIZE"},
};
enum { PLACES = sizeof places / sizeof *places };

static const struct place *place_find(void)
{
    for (int i = 0; i < PLACES; i++) if (getenv(places[i].rank)) return &places[i];
    return NULL;
}

bool launched_any(void) { return place_find() != NULL; }

bool launched_first(void)
{
    const struct place *p = place_find();
    return !p || strcmp(getenv(p->rank), "0") == 0;
}

int launched_ranks(void)
{
    int n = 0;
    for (int i = 0; launched_any() && i < PLACES && n <= 0; i++) n = count_in(places[i].size);
    return n > 0 ? n : 0;
}

int launched_here(void)
{
    const struct place *p = place_find();
    return p && count_in(p->here) > 0 ? count_in(p->here) : 0;
}

int launched_rank_in(const char *entry)
{
    for (int i = 0; i < PLACES; i++) {
        size_t n = strlen(places[i].rank);
        if (strncmp(entry, places[i].rank, n) == 0 && entry[n] == '=') return atoi(entry + n + 1);
    }
    return -1;
}

void launched_ids(void (*take)(void *ctx, const char *label, const char *id), void *ctx)
{
    static const struct { const char *label, *variable; } ids[] = {
        {"slurm_job_id", "SLURM_JOB_ID"}, {"slurm_array_job_id", "SLURM_ARRAY_JOB_ID"},
        {"slurm_array_task_id", "SLURM_ARRAY_TASK_ID"}, {"slurm_cluster_name", "SLURM_CLUSTER_NAME"},
        {"flux_job_id", "FLUX_JOB_ID"}, {"lsf_job_id", "LSB_JOBID"}, {"pbs_job_id", "PBS_JOBID"},
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        const char *id = getenv(ids[i].variable);
        if (id && *id) take(ctx, ids[i].label, id);
    }
}

int64_t launched_seconds_left(void)
{
    const char *s = getenv("SLURM_JOB_END_TIME");
    char *after;
    long long end = s ? strtoll(s, &after, 10) : 0, now = clock_unix_s();
    return !s || after == s || *after || end <= now ? -1 : end - now;
}
