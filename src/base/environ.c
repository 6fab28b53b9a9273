/* Each change of the environment makes a new table. */
#include "config.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/environ.h"
#include "base/mem.h"

/* The new variable's text follows the pointers in the table's own memory, because unsetenv may remove its
 * pointer. */
struct table { struct table *before; char *at[]; };
static struct table *newest;                              /* lets leak checkers reach all tables */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* held while the environment changes */

/* With `lock` held: copies all variables but `name`, then adds `name` with `value` unless that is NULL. */
static void replace(const char *name, const char *value)
{
    size_t n = 0, all = 0, length = strlen(name), more = value ? length + strlen(value) + 2 : 0;
    while (environ && environ[all]) all++;
    struct table *t = mem_alloc(sizeof *t + (all + 2) * sizeof *t->at + more);
    for (size_t i = 0; i < all; i++)
        if (strncmp(environ[i], name, length) || environ[i][length] != '=') t->at[n++] = environ[i];
    if (value) {
        char *text = (char *)(t->at + all + 2);
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
