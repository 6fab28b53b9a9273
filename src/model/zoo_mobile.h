/* Inverted residual blocks as MobileNets and EfficientNets have them: expansion, depthwise convolution, squeeze and
 * excitation, projection. For these builders. */
#ifndef MODEL_ZOO_MOBILE_H
#define MODEL_ZOO_MOBILE_H
#include "model/zoo.h"

/* Convolution, batch norm, and an operator behind it (NULL: none), under "AT.0", "AT.1", "AT.2". */
struct mobile_unit { int64_t channels, kernel, stride, groups; const char *act, *norm; };   /* norm: its attributes */
int mobile_unit(const struct zoo_at *z, int in, const char *at, const struct mobile_unit *u);

/* Under "AT.fc1", "AT.fc2": x times a gate of its channels, made of their means by `act` and `gate`. */
struct mobile_squeeze { int64_t channels; const char *act, *gate; };
int mobile_squeeze(const struct zoo_at *z, int in, const char *at, const struct mobile_squeeze *s);

/* Weights of a classifier's linear layer, torchvision's for MobileNets. */
void mobile_head_init(const struct zoo_at *z, const char *name);
#endif
