/* The values between an ONNX file's nodes, while its network is built. For this folder only. */
#ifndef MODEL_ONNX_VALUE_H
#define MODEL_ONNX_VALUE_H
#include "model/onnx/file.h"

enum { RANK = 8, FOLD_MOST = 1 << 22 };                 /* dimensions; elements of a value that is computed here */
enum { WINDOW_MOST = INT32_MAX };                       /* points that a window, its padding or its step has */

/* A way to look at elements that lie in a row: index i of axis k is `rep[k]` times each of the numbers
 * offset + stride[k] * (i / rep[k]).
 * All numbers are of one sample. sample: with any number of samples axis sample - 1 has that many times the elements;
 * the samples run through along it `outer` times. 0: of known numbers, and where a file has one sample. */
struct axes { int n; int64_t d[RANK], stride[RANK], rep[RANK], offset; int sample; int64_t outer; };

enum value_kind {
    V_NONE,
    V_FIXED,      /* known: of the file, or computed here */
    V_VIEW,       /* elements of one of our tensors, times a factor */
    V_FUNCTION,   /* a function of one value, of each element of one view: a tree (unary_find.c) */
    V_PRODUCT,    /* a view times a matrix of weights: a linear layer whose bias may follow */
    V_NORM,       /* part of a norm over the last axis (norms.c) */
    V_SCORES,     /* products of queries and keys (attention.c) */
    V_CHANCES,    /* their softmax */
    V_ROTATED,    /* halves of each head exchanged, and one with the other sign */
    V_PADDED,     /* a view between zeros, for a convolution */
    V_TIMES,      /* a view or V_ROTATED times known numbers of more than one element */
};

/* Parts of norms. x: the view; eps is added under the root. */
enum norm_part { N_MEAN, N_CENTRED, N_SQUARE, N_MEANSQ, N_ROOT, N_INVERSE, N_RMS, N_LAYER, N_SCALED,
                 N_GROUP, N_GROUP_SCALED };

struct value {
    const char *name;
    enum value_kind kind;
    int uses;                                           /* by nodes that the output needs */
    struct axes at;
    /* V_FIXED: `from` is a tensor of the file as it is there, but for the axes; NULL: computed. c: all its elements,
     * read when somebody asks; row: in the order of the axes. whole: integers or truth values; f64: of type DOUBLE.
     * constant: of a node Constant, and never trained */
    const Onnx__Tensor *from; double *c, *row; int64_t count; bool whole, f64, constant;
    struct value *twin;                                 /* what it is with two samples; NULL: the same */
    /* V_VIEW. wide: of tokens, an integer tensor. added: the Add whose known numbers it has already, as a bias */
    int tensor; double scale; bool wide; const Onnx__Node *added;
    /* the others. code: of a function, or a part of a norm */
    int code, size; double k, k2; bool centred; struct value *a, *b;
    const int64_t *pads;                                /* V_PADDED: zeros before each axis of a, then behind each */
};

struct import {
    struct graph_builder *b;
    struct onnx_file *file;
    const struct onnx_ask *ask;
    const Onnx__Node *node;                             /* at which it is, for messages and names */
    VEC(struct value *) value; struct name_table named;
    /* plain: onnx_is_plain of `from`; last: the number of its last name. Both of the first use; 0: not asked */
    VEC(struct used_weight { const Onnx__Tensor *from; const char *node; int slot; int plain; int last; }) used;
    struct name_table reads;                            /* by nodes that the output needs: how often, and the last */
    struct reads { int n; const Onnx__Node *by; } *read;
    bool two;                                           /* it computes known numbers for two samples */
    struct name_table bases; VEC(int) last;             /* of names: how often */
    int64_t opset, folded;                              /* folded: numbers that were computed */
    int tokens, positions;                              /* tensors of a decoder; -1: none */
    bool open;                                          /* any number of samples */
    struct err *e;
};

/* Sets the error once: 65 "FILE: node NAME (OPERATOR): TEXT". Returns -1. */
int import_fail(struct import *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- axes -------------------------------------------------------------------------------------------------------- */
struct axes axes_of(int n, const int64_t *d);           /* elements in a row */
int64_t axes_count(const struct axes *a);
/* The same elements in other dimensions. False: no such way. */
bool axes_reshape(const struct axes *a, int n, const int64_t *d, struct axes *out);
bool axes_same(const struct axes *a, const struct axes *b);        /* without dimensions of 1 */
bool axes_equal(const struct axes *a, const struct axes *b);       /* with them */
/* Gives `to`, which has the elements of `from` in the same order, its samples along that axis. False: they lie
 * elsewhere among the elements. */
bool axes_sample(const struct axes *from, struct axes *to, int axis);
bool axes_aligned(const struct axes *a, const struct axes *b);     /* samples lie along the same axis */
/* Whether a, of the last of n dimensions, has more than one element along this axis alone. */
bool axes_along(const struct axes *a, int n, int axis);
/* Whether the dimensions are equal, or those of b 1 or missing in front. */
bool axes_fit(const struct axes *a, const struct axes *b);
/* Whether n dimensions with two samples, `two`, are those with one, d, but for the axis of a's samples, which may be
 * twice as long. */
bool twins_fit(const struct axes *a, int n, const int64_t *d, const int64_t *two);
/* An axis of the standard, which may count from the end; -1: out of range, the error is set. */
int axis_of(struct import *m, const struct axes *a, int64_t axis);

/* ---- making values. Each is in the import's memory --------------------------------------------------------------- */
struct value *value_fixed(struct import *m, int n, const int64_t *d, bool whole);       /* zeros */
struct value *value_view(struct import *m, int tensor, const struct axes *at);
struct value *value_named(const struct import *m, const char *name);               /* NULL: there is none */
struct value *value_again(struct import *m, const struct value *v, const struct axes *at);
/* The numbers of a known value in the order of its axes. Not to be freed. NULL: the error is set. */
const double *fixed_numbers(struct import *m, struct value *v);
bool fixed_single(struct import *m, struct value *v, double *x);   /* one element */
bool is_fixed(const struct value *v);
bool same_numbers(struct import *m, struct value *v);    /* of a known value and its twin */

/* ---- turning them into nodes ------------------------------------------------------------------------------------- */
/* Makes v a V_VIEW: adds the nodes that it still lacks. -1: it cannot be said. */
int need_view(struct import *m, struct value *v);
/* Makes v a view of all elements of one tensor without a factor, each once: adds slices. Returns the tensor, or -1. */
int whole_of(struct import *m, struct value *v);
/* The same; and this axis is the channels of the tensor. */
int channels_of(struct import *m, struct value *v, int axis);
/* The axes that a tensor of ours has that came from one with axes `at` and has d channels in axis `axis` instead. */
struct axes axes_with(const struct axes *at, int axis, int64_t d);

/* Adds a node. what: of its name if it has no weight. Returns its tensor, or -1. */
int emit(struct import *m, const char *op, const char *name, const char *attrs, int in);
int emit2(struct import *m, const char *op, const char *name, int x, int y);
const char *node_name(struct import *m, const struct value *weight);    /* unique */
/* Gives parameter slot k of a node the name of a weight, or ties it. The weight is all of a tensor of the file, in its
 * order. */
int take_weight(struct import *m, struct value *w, const char *node, int slot);

/* ---- attributes -------------------------------------------------------------------------------------------------- */
const Onnx__Attribute *attribute(const struct import *m, const char *name);
int64_t attr_int(const struct import *m, const char *name, int64_t otherwise);
double attr_real(const struct import *m, const char *name, double otherwise);
const char *attr_word(struct import *m, const char *name, const char *otherwise);
int64_t integer_of(double x);                           /* of a known number; 0 for none, and at most 9e18 */
/* Numbers of an attribute, or of a known input (v may be NULL). Returns how many; -1: neither, or too many.
 * twins_of: with two samples */
int twins_of(struct import *m, const char *name, struct value *v, int64_t out[RANK]);
int ints_of(struct import *m, const char *name, struct value *v, int64_t out[RANK]);

/* ---- families of operators; each returns -1 with the error set --------------------------------------------------- */
typedef int import_op(struct import *m, struct value **in, int n_in, struct value **out, int n_out);
import_op import_fold;                                      /* fold.c: an operator of known values */
bool fold_knows(const char *op);
/* unary_find.c: V_FUNCTION of a (and b or a number) */
int function_make(struct import *m, int code, struct value *a, struct value *b, double k, struct value **out);
int function_code(const char *op);                      /* -1: it is none */
int function_view(struct import *m, struct value *v);   /* need_view for V_FUNCTION */
bool function_is_square(const struct value *v, const struct value **x);
import_op import_function, import_add, import_sum, import_sub, import_mul, import_div, import_pow, import_clip;
/* norms.c */
import_op import_reduce_mean, import_global_mean, import_layer_norm, import_rms_norm, import_instance_norm;
import_op import_group_norm;
int norm_view(struct import *m, struct value *v);       /* need_view for V_NORM: a layer norm without a bias */
/* What becomes of parts of a norm by + - * / (b), their square (2), root (r), inverse (i) or inverse root (I). 1: done;
 * 0: a and b are no such parts; -1: the error is set. */
int norm_binary(struct import *m, char sign, struct value *a, struct value *b, struct value **out);
/* attention.c */
import_op import_matmul, import_gemm, import_softmax, import_attention, import_where, import_is_nan;
int product_view(struct import *m, struct value *v);    /* without a bias */
int product_bias(struct import *m, struct value *v, struct value *w, struct value **out);           /* 0: not one */
/* As norm_binary. */
int scores_binary(struct import *m, char sign, struct value *a, struct value *b, struct value **out);
int rotary_concat(struct import *m, struct value **in, int n_in, int axis, struct value **out);
int rotary_add(struct import *m, struct value *a, struct value *b, struct value **out);
/* layers.c, moves.c */
/* needs: inputs that must be there; ALL: as many as the node names, and one at least */
enum { ALL = -1 };
/* known: BROADCASTS, or the input whose known numbers may depend on the number of samples, as f sees to it; 0: none */
enum { BROADCASTS = -1 };
extern const struct import_row { const char *op; import_op *f; int needs, known; } import_layers[], import_moves[];

#endif
