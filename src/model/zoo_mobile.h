/* Inverted residual blocks of MobileNets and EfficientNets: expansion, depthwise convolution, squeeze and excitation,
 * projection. For their builders. */
#ifndef MODEL_ZOO_MOBILE_H
#define MODEL_ZOO_MOBILE_H
#include "model/zoo.h"

/* Convolution, batch norm and an activation (NULL: none), under "AT.0", "AT.1", "AT.2". */
struct mobile_unit { int64_t channels, kernel, stride, groups; const char *act, *norm; };   /* norm: its attributes */
int mobile_unit(const struct zoo_at *z, int in, const char *at, const struct mobile_unit *u);

/* Under "AT.fc1", "AT.fc2": multiplies x by a gate per channel, computed from the channels' means by `act` and
 * `gate`. */
struct mobile_squeeze { int64_t channels; const char *act, *gate; };
int mobile_squeeze(const struct zoo_at *z, int in, const char *at, const struct mobile_squeeze *s);
#endif
