/* A new table of the environment for each change of it. */
#include "config.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/environ.h"
#include "base/mem.h"

/* The text that was new in a table is in its own memory, behind the places: unsetenv may take its place away. */
struct table { struct table *before; char *at[]; };
static struct table *newest;                              /* keeps all tables in sight of leak checkers */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* for who changes the environment */

/* With `lock` held: all variables but `name`; then `name` with `value`, if that is not NULL. */
static void replace(const char *name, const char *value)
{
    size_t n = 0, room = 0, length = strlen(name), more = value ? length + strlen(value) + 2 : 0;
    while (environ && environ[room]) room++;
    struct table *t = mem_alloc(sizeof *t + (room + 2) * sizeof *t->at + more);
    for (size_t i = 0; i < room; i++)
        if (strncmp(environ[i], name, length) || environ[i][length] != '=') t->at[n++] = environ[i];
    if (value) {
        char *text = (char *)(t->at + room + 2);
        snprintf(text, more, "%s=%s", name, value);
        t->at[n++] = text;
    }
    t->at[n] = NULL;
    t->before = newest;
    newest = t;
    __atomic_store_n(&environ, t->at, __ATOMIC_RELEASE);
}

void environ_default(const char *name, const char *value)
{
    pthread_mutex_lock(&lock);
    if (!getenv(name)) replace(name, value);
    pthread_mutex_unlock(&lock);
}

void environ_remove(const char *name)
{
    pthread_mutex_lock(&lock);
    if (getenv(name)) replace(name, NULL);
    pthread_mutex_unlock(&lock);
}
