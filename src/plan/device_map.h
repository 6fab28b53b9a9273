/* Where each module's weights lie: on a device, in host memory or on disk. Computed as Hugging Face's accelerate does
 * (infer_auto_device_map, get_balanced_memory of utils/modeling.py). Pure. */
#ifndef PLAN_DEVICE_MAP_H
#define PLAN_DEVICE_MAP_H
#include "conf/conf.h"
#include "model/modules.h"

/* Places besides the numbers of devices. AT_PARTS: the module is no key of the map. */
enum { AT_CPU = -1, AT_DISK = -2, AT_PARTS = -3 };
struct device_map_request {
    const struct modules *m;
    const struct conf_texts *no_split;                   /* modules and classes that stay whole */
    int n_devices; const uint64_t *limit;                /* bytes of each device */
    bool has_host; uint64_t host;                        /* bytes of host memory */
    bool balance, low_zero;                              /* balanced; with low_zero balanced_low_0 */
};
/* The place of each module that is a key of the map, as few as possible. What fits nowhere is on disk. free() it. */
int *device_map_make(const struct device_map_request *q);
/* The place of the module `name`, or of the one above it that is a key; AT_PARTS: it is divided. */
int device_map_find(const struct modules *m, const int *at, const char *name);

/* The map of a plan. bytes: of each rank's weights as stored, by the place where they lie; NULL: the map is only shown.
 * slots: of each rank, memory through which its weights from other places pass. */
enum weight_place { ON_RANK, IN_HOST, ON_DISK, WEIGHT_PLACES };
struct device_map {
    struct modules *m; int *at;
    int n_ranks; uint64_t (*bytes)[WEIGHT_PLACES], *slots;
    enum weight_place *of_param;                         /* of each parameter of the graph */
};
/* Bytes that a rank's device does not have to hold. map may be NULL. */
static inline uint64_t device_map_spares(const struct device_map *map, int rank)
{
    if (!map || !map->bytes) return 0;
    const uint64_t away = map->bytes[rank][IN_HOST] + map->bytes[rank][ON_DISK];
    return away > map->slots[rank] ? away - map->slots[rank] : 0;
}
#endif
