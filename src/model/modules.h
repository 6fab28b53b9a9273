/* The modules of a network as PyTorch has them: a tree of dotted names with classes and bytes of weights. Device maps
 * are made of them (plan/device_map.h). */
#ifndef MODEL_MODULES_H
#define MODEL_MODULES_H
#include "base/mem.h"
#include "conf/conf.h"

struct module {
    const char *name, *layer;                            /* "model.layers.0", its class or NULL; the root: "" */
    int end;                                             /* its own modules are those behind it, up to here */
    bool holds;                                          /* has weights itself, not only in its modules */
    uint64_t own, bytes;                                 /* its own weights; with those of all its modules */
    /* The module whose weight it shares, which counts it, and the weight's bytes; -1: none. */
    int shares; uint64_t shared;
};
/* In the order of PyTorch: a module before its own. module[0] is the root. */
struct modules { struct arena *mem; struct module *module; int n, cap; };

struct modules *modules_new(const char *layer);          /* with a root of this class; free with modules_free */
/* Adds a module behind those of the module that it belongs to; modules between are added without a class. bytes: of its
 * own weights. Returns its number, which later ones may change. */
int modules_add(struct modules *m, const char *name, const char *layer, uint64_t bytes);
void modules_finish(struct modules *m);                  /* sets end and bytes; shares must be final */
int modules_find(const struct modules *m, const char *name);     /* -1: none */
void modules_free(struct modules *m);

/* Those of a decoder, as in transformers; NULL: 66 or 78, as decoder_of (decoder_modules.c). Weights count in the type
 * of its config.json, those in 8 bits one byte. */
struct modules *decoder_modules(const struct conf *c, struct err *e);
#endif
