/* The names of a run's classes, as a file in its directory. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mem.h"
#include "ckpt/checkpoint.h"
#include "report/class_file.h"
#include "report/json_name.h"

enum { FILE_MAX = 64 << 20 };

static json_t *names_of(const struct ds *data)
{
    json_t *all = json_array();
    for (int64_t i = 0; i < data->n_classes; i++) json_array_append_new(all, json_name(data->class_name[i]));
    return all;
}

int class_file_write(const struct rundir *d, const struct ds *data, struct err *e)
{
    struct text t = {0};
    struct out_place at;
    if (!data->class_name) return 0;
    json_t *all = names_of(data);
    char *lines = json_dumps(all, JSON_INDENT(1));
    text_add(&t, "%s\n", lines);
    free(lines);
    json_decref(all);
    int bad = out_place_in(d->fd, d->path, CLASS_FILE, &at, e) || out_file(&at, &t, false, e);
    text_free(&t);
    return bad ? -1 : 0;
}

static bool is_names(const json_t *all)
{
    bool are = json_array_size(all) > 0;
    for (size_t i = 0; i < json_array_size(all); i++) are &= json_is_string(json_array_get(all, i));
    return are;
}

static int names_read(const char *path, json_t **all, struct err *e)
{
    struct text t = {0};
    if (access(path, F_OK)) return 0;                     /* other programs' weights and older runs have none */
    if (text_read_file(&t, path, FILE_MAX, e)) return -1;
    *all = json_loadb(t.s, t.n, 0, NULL);
    text_free(&t);
    return is_names(*all) ? 0 : err_set(e, E_DATA, "%s: is not an array of class names", path);
}

static int names_compare(const char *path, const struct conf *c, const struct ds *data, const json_t *was,
                         struct err *e)
{
    json_t *now = names_of(data);
    size_t i = 0, n = json_array_size(now);
    while (i < n && json_equal(json_array_get(now, i), json_array_get(was, i))) i++;
    const char *old = json_string_value(json_array_get(was, i));
    if (i < n)
        conf_error(c, c->data.train ? "data.train" : "data.test", e, "class %zu is %.200s, and was %.200s in training "
                   "(%s)", i, json_string_value(json_array_get(now, i)), old ? old : "none", path);
    json_decref(now);
    return i < n ? -1 : 0;
}

static void names_give(struct ds *data, struct class_names *n)
{
    data->n_classes = (int64_t)json_array_size(n->all);
    n->name = mem_alloc((size_t)data->n_classes * sizeof *n->name);
    for (int64_t i = 0; i < data->n_classes; i++) n->name[i] = json_string_value(json_array_get(n->all, (size_t)i));
    data->class_name = n->name;
}

/* Of a checkpoint it is in its run's directory. */
static void file_find(const char *from, struct text *path)
{
    struct stat st;
    const char *end = strrchr(from, '/');
    if (stat(from, &st) || !S_ISDIR(st.st_mode)) {
        text_add(path, "%.*s" CLASS_FILE, end ? (int)(end + 1 - from) : 0, from);
        return;
    }
    text_add(path, "%s/" CKPT_MANIFEST, from);
    bool checkpoint = !access(path->s, F_OK);
    path->n = 0;
    text_add(path, "%s/%s" CLASS_FILE, from, checkpoint ? "../../" : "");
}

int class_file_use(const char *from, const struct conf *c, struct ds *data, struct class_names *n, struct err *e)
{
    struct text path = {0};
    file_find(from, &path);
    int bad = names_read(path.s, &n->all, e);
    if (!bad && n->all && data->class_name) bad = names_compare(path.s, c, data, n->all, e);
    else if (!bad && n->all) names_give(data, n);
    text_free(&path);
    return bad ? -1 : 0;
}

void class_names_free(struct class_names *n)
{
    json_decref(n->all);
    free(n->name);
}
