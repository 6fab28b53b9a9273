/* A new table of the environment for each change of it. */
#include "config.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/environ.h"
#include "base/mem.h"

struct table { struct table *before; char *at[]; };
static struct table *newest;                              /* keeps all tables in sight of leak checkers */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* for who changes the environment */

/* With `lock` held: all variables but `name`, then `last`, if there is one. */
static void replace(const char *name, char *last)
{
    size_t n = 0, room = 0, length = strlen(name);
    while (environ && environ[room]) room++;
    struct table *t = mem_alloc(sizeof *t + (room + 2) * sizeof *t->at);
    for (size_t i = 0; i < room; i++)
        if (strncmp(environ[i], name, length) || environ[i][length] != '=') t->at[n++] = environ[i];
    if (last) t->at[n++] = last;
    t->at[n] = NULL;
    t->before = newest;
    newest = t;
    __atomic_store_n(&environ, t->at, __ATOMIC_RELEASE);
}

void environ_default(const char *name, const char *value)
{
    pthread_mutex_lock(&lock);
    if (!getenv(name)) {
        size_t n = strlen(name), m = strlen(value);
        char *both = mem_alloc(n + m + 2);
        memcpy(both, name, n);
        both[n] = '=';
        memcpy(both + n + 1, value, m + 1);
        replace(name, both);
    }
    pthread_mutex_unlock(&lock);
}

void environ_remove(const char *name)
{
    pthread_mutex_lock(&lock);
    if (getenv(name)) replace(name, NULL);
    pthread_mutex_unlock(&lock);
}
