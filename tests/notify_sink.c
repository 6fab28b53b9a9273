/* notify_sink SOCKET: replaces a service manager. Until it is killed, it prints each datagram that arrives as one line,
 * in which " | " separates the datagram's lines. notify_sink SOCKET end: it ends, after what came before. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static void print(char *s)
{
    for (char *end; (end = strchr(s, '\n')); s = end + 1) printf("%.*s | ", (int)(end - s), s);
    puts(s);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char buf[4096];
    int s = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (argc < 2 || strlen(argv[1]) >= sizeof at.sun_path) return 64;
    strcpy(at.sun_path, argv[1]);
    if (argc > 2) return sendto(s, "END", 3, 0, (const struct sockaddr *)&at, sizeof at) == 3 ? 0 : 69;
    if (s < 0 || bind(s, (const struct sockaddr *)&at, sizeof at)) {
        perror(argv[1]);
        return 73;
    }
    for (ssize_t n; (n = recv(s, buf, sizeof buf - 1, 0)) >= 0;) {
        buf[n] = 0;
        if (!strcmp(buf, "END")) return 0;
        print(buf);
    }
    perror("recv");
    return 74;
}
