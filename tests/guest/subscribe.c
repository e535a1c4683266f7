// subscribe SOCKET: prints what a local socket tells, until it ends.
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (argc != 2 || strlen(argv[1]) >= sizeof address.sun_path) {
        fprintf(stderr, "usage: subscribe SOCKET\n");
        return 2;
    }
    strcpy(address.sun_path, argv[1]);
    int end = socket(AF_UNIX, SOCK_STREAM, 0);
    if (end < 0 || connect(end, (struct sockaddr *)&address, sizeof address)) {
        perror(argv[1]);
        return 1;
    }
    char text[4096];
    for (ssize_t n; (n = read(end, text, sizeof text)) > 0;)
        if (write(1, text, (size_t)n) != n)
            return 1;
    return 0;
}
