#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/mem.h"
#include "base/file_kind.h"
#include "ckpt/st_other.h"

#define WANTED "safetensors"

/* Files that may hold a network, and Python to load them. */
struct holder { const char *what, *load; };
static const struct holder
    saved = {"as torch.save writes it",
             "t.load(p,'cpu',**dict.fromkeys({'weights_only'}&{*t.load.__code__.co_varnames},True))"},
    script = {"of TorchScript", "t.jit.load(p,'cpu')"},
    arrays = {"of NumPy arrays (.npz)", "{k:t.from_numpy(v)for k,v in __import__('numpy').load(p).items()}"};

/* Python that writes the first tensors it finds as safetensors. Tensors of a nested dictionary, such as {"model": ...},
 * but not the optimizer's, precede the outer dictionary's. It needs only PyTorch. */
#define CONVERT_1 \
    "import ctypes,json,sys,torch as t;p=sys.argv[1];T=t.is_tensor;" \
    "u=lambda d:isinstance(d:=getattr(d,'state_dict',lambda:d)(),dict)and(next(filter(None,(u(d[k])for k in d " \
    "if'opt'not in str(k))),0)or any(map(T,d.values()))and d);w={k:v.contiguous()for k,v in(u("
#define CONVERT_2 \
    ")or exit('no tensors')).items()if T(v)};n=0;b=lambda v:v.numel()*v.element_size();h=json.dumps({k:{'dtype':" \
    "str(v.dtype)[6:].replace('float','F').replace('uint','U').replace('int','I').upper(),'shape':[*v.shape]," \
    "'data_offsets':[n,n:=n+b(v)]}for k,v in w.items()}).encode();f=open(p+'.safetensors','wb');" \
    "f.write(len(h).to_bytes(8,'little')+h);[f.write(ctypes.string_at(v.data_ptr(),b(v)))for v in w.values()]"

/* A name that needs no quotes in a command. */
static bool plain_name(const char *path)
{
    size_t n = strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-");
    return n < 80 && !path[n];
}

static bool holds(const char *s, size_t n, const char *part)
{
    return memmem(s, n, part, strlen(part)) != NULL;
}

/* Recognises a zip file by its members' names, at its end, or, if it is truncated, at its beginning. */
static const struct holder *zip_holder(const struct st *s)
{
    enum { END = 1 << 16 };
    const size_t n = s->size < END ? s->size : END;
    char *end = mem_alloc(n);
    const struct holder *h = NULL;
    for (int front = 0; front < 2 && !h; front++) {
        if (file_read_at(s->fd, s->path, front ? 0 : s->size - n, end, n, NULL)) break;
        h = holds(end, n, "/constants.pkl") ? &script : holds(end, n, "/data.pkl") ? &saved
          : holds(end, n, ".npy") ? &arrays : NULL;
    }
    free(end);
    return h;
}

static int convert_hint(const struct st *s, const struct file_kind *is, const struct holder *h, struct err *e)
{
    const char *name = plain_name(s->path) ? s->path : "x.pth";
    return err_set(e, E_DATA, "%.150s: this is %s, %s, not " WANTED "; to convert it: python3 -c \"" CONVERT_1 "%s"
                   CONVERT_2 "\" %s", s->path, is->name, h->what, h->load, name);
}

int st_other_refuse(const struct st *s, struct err *e)
{
    char head[FILE_KIND_BYTES];
    const size_t n = s->size < sizeof head ? s->size : sizeof head;
    if (file_read_at(s->fd, s->path, 0, head, n, e)) return -1;
    /* the first 8 bytes are a length, whatever they look like */
    const struct file_kind *is = n > 8 && head[8] == '{' ? NULL : file_kind(head, n);
    if (!is) return 0;
    const struct holder *h = is->kind == FILE_KIND_PICKLE ? &saved : is->kind == FILE_KIND_ZIP ? zip_holder(s) : NULL;
    if (h) return convert_hint(s, is, h, e);
    return err_set(e, E_DATA, "%s: this is %s, not " WANTED "%s%s", s->path, is->name, is->remedy ? ": " : "",
                   is->remedy ? is->remedy : "; save the weights as " WANTED ", by the names of --summary");
}
