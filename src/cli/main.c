/* mpstaged: trains a neural network as a pipeline of processes. See mpstaged(8). */
#include <jansson.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/mem.h"
#include "base/launched.h"
#include "cluster/heartbeat.h"
#include "cluster/log.h"
#include "cluster/terminal.h"
#include "service/run.h"
#include "cluster/shutdown.h"
#include "cli/modes.h"
#include "conf/opts.h"

static void out_of_memory(size_t bytes)
{
    char line[80];
    snprintf(line, sizeof line, "out of memory: cannot allocate %zu byte%s", bytes, bytes == 1 ? "" : "s");
    if (!heartbeat_carries()) log_quiet(false);
    abort_request(FAILURE_NOBODY, E_INTERNAL, line);
    shutdown_end();
}

/* Each thread's heap reserves 64 MiB of address space, which is too much if address space is limited. */
static void heaps_limit(void)
{
    struct rlimit r;
    if (!getrlimit(RLIMIT_AS, &r) && r.rlim_cur != RLIM_INFINITY) mallopt(M_ARENA_MAX, 1);
}

int main(int argc, char **argv)
{
    struct opts o;
    struct err e = {0};
    int code;
    heaps_limit();
    mem_oom_handler(out_of_memory);
    json_set_alloc_funcs(mem_alloc, free);               /* jansson's calls cannot fail for lack of memory either */
    signal(SIGXFSZ, SIG_IGN);                             /* writing then fails at the limit of file sizes (74) */
    bool first = launched_first();                        /* one process speaks for the whole job */
    log_quiet(!first);
    log_journal(terminal_is_journal(launched_any()));
    if (opts_parse(&o, argc, argv, &e)) {
        code = log_error(e.code, e.text);
        /* mpirun 5.0 ends all ranks when the first one fails, even before it has read that rank's message */
        if (!first) sleep(1);
    } else if (o.mode == MODE_RUN || opts_measures(&o)) {
        code = run_main(&o, &argc, &argv);
        shutdown_over();
    }
    else if (!first) code = 0;
    else {
        shutdown_begin(false);
        shutdown_phase(SHUTDOWN_START, "planning");
        code = mode_run(&o, launched_ranks(), &e);
        if (e.code) log_error(e.code, e.text);
    }
    opts_free(&o);
    return code;
}
