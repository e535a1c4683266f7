// link: -static
// hooked FILE: a hook. Notes in FILE, as a line of JSON, the CLOCK_MONOTONIC nanoseconds at which it began to run, before
// anything else, and what it was told in its environment and on standard input.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

int main(int argc, char **argv) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (argc != 2)
        return 2;
    static char input[65536];
    size_t length = 0;
    for (ssize_t n; length < sizeof input - 1 && (n = read(0, input + length, sizeof input - 1 - length)) > 0;)
        length += (size_t)n;
    while (length && input[length - 1] == '\n')
        input[--length] = 0;
    FILE *file = fopen(argv[1], "a");
    if (!file) {
        perror(argv[1]);
        return 1;
    }
    // One write: several hooks may run at once.
    static char line[70000];
    int n = snprintf(line, sizeof line, "{\"t\":%lld,\"rule\":\"%s\",\"t_event\":%s,\"t_spawn\":%s,\"input\":%s}\n",
                     now.tv_sec * 1000000000LL + now.tv_nsec, variable("RDMASCOPE_RULE"), variable("RDMASCOPE_T_EVENT"),
                     variable("RDMASCOPE_T_SPAWN"), input);
    setvbuf(file, NULL, _IOFBF, sizeof line);
    return fwrite(line, 1, (size_t)n, file) == (size_t)n && !fclose(file) ? 0 : 1;
}
