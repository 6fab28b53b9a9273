/* Numeric addresses to listen at: "127.0.0.1:9464", "[::1]:9464"; ":9464" is 127.0.0.1. Names are not looked up. Any
 * thread. */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H
#include <sys/socket.h>

struct address { struct sockaddr_storage at; socklen_t n; };
int address_parse(const char *s, struct address *a);      /* -1: not an address with a port from 0 to 65535 */
/* Address of a socket in the file system or in the abstract namespace, as NOTIFY_SOCKET names it (sd_notify(3)):
 * "/path", "@name". -1: s is neither, or is too long. */
int address_parse_unix(const char *s, struct address *a);
enum { ADDRESS_TEXT = 64 };
char *address_text(const struct address *a, char buf[ADDRESS_TEXT]);   /* the inverse of address_parse; returns buf */
#endif
