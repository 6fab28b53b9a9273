/* Writes pipes, terminals and sockets without waiting for readers. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/out.h"

/* Opens a pipe or terminal again. Its other users share the description of `fd`, and O_NONBLOCK would affect them. */
static void look(struct out_stream *s)
{
    struct stat st;
    char path[40];
    if (fstat(s->fd, &st)) return;
    if (s->checked && st.st_dev == s->dev && st.st_ino == s->ino) return;
    out_stream_close(s);
    *s = (struct out_stream){.fd = s->fd, .own = -1, .checked = true, .dev = st.st_dev, .ino = st.st_ino};
    s->socket = S_ISSOCK(st.st_mode);
    if (!S_ISFIFO(st.st_mode) && !(S_ISCHR(st.st_mode) && isatty(s->fd))) return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", s->fd);
    s->own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

ssize_t out_stream_write(struct out_stream *s, const void *p, size_t n)
{
    ssize_t k;
    look(s);
    do k = s->socket ? send(s->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL) : write(s->own >= 0 ? s->own : s->fd, p, n);
    while (k < 0 && errno == EINTR);
    return k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : k;
}

void out_stream_close(struct out_stream *s)
{
    if (s->checked && s->own >= 0) close(s->own);
    s->own = -1;
    s->checked = false;
}
