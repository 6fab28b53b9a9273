#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include "base/address.h"

static int port_parse(const char *s)
{
    size_t n = strspn(s, "0123456789");
    long port = n && n <= 5 && !s[n] ? strtol(s, NULL, 10) : -1;
    return port <= 65535 ? (int)port : -1;
}

/* The host between the brackets of "[::1]:9464", or before the colon of "127.0.0.1:9464". */
static int host_parse(const char *host, size_t n, bool six, int port, struct address *a)
{
    char name[INET6_ADDRSTRLEN] = "127.0.0.1";
    struct sockaddr_in *v4 = (struct sockaddr_in *)&a->at;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a->at;
    if (n >= sizeof name || (six && !n)) return -1;
    if (n) snprintf(name, sizeof name, "%.*s", (int)n, host);
    *a = (struct address){.n = six ? sizeof *v6 : sizeof *v4};
    a->at.ss_family = six ? AF_INET6 : AF_INET;
    if (six) v6->sin6_port = htons((uint16_t)port);
    else v4->sin_port = htons((uint16_t)port);
    return inet_pton(a->at.ss_family, name, six ? (void *)&v6->sin6_addr : (void *)&v4->sin_addr) == 1 ? 0 : -1;
}

int address_parse(const char *s, struct address *a)
{
    const char *colon = strrchr(s, ':');
    int port = colon ? port_parse(colon + 1) : -1;
    if (port < 0) return -1;
    bool six = *s == '[';
    if (six && (colon == s || colon[-1] != ']')) return -1;
    return six ? host_parse(s + 1, (size_t)(colon - s) - 2, true, port, a)
               : host_parse(s, (size_t)(colon - s), false, port, a);
}

/* The length of a path includes its final zero. An abstract name begins with a zero and has none at its end. */
int address_parse_unix(const char *s, struct address *a)
{
    struct sockaddr_un *to = (struct sockaddr_un *)&a->at;
    size_t n = strlen(s) + (*s == '/');
    if ((*s != '/' && *s != '@') || !s[1] || n > sizeof to->sun_path) return -1;
    *a = (struct address){.n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)};
    to->sun_family = AF_UNIX;
    memcpy(to->sun_path, s, n);
    if (*s == '@') *to->sun_path = '\0';
    return 0;
}

char *address_text(const struct address *a, char buf[ADDRESS_TEXT])
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a->at;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a->at;
    bool six = a->at.ss_family == AF_INET6;
    char name[INET6_ADDRSTRLEN] = "";
    inet_ntop(a->at.ss_family, six ? (const void *)&v6->sin6_addr : (const void *)&v4->sin_addr, name, sizeof name);
    snprintf(buf, ADDRESS_TEXT, six ? "[%s]:%d" : "%s:%d", name, ntohs(six ? v6->sin6_port : v4->sin_port));
    return buf;
}
