// mono [NAME [KEY=VALUE…]]: prints CLOCK_MONOTONIC in nanoseconds; with a name as a line of JSON,
// {"t":…,"action":NAME,KEY:VALUE…} with every value a string.
#include <stdio.h>
#include <string.h>
#include <time.h>

int main(int argc, char **argv) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long long t = now.tv_sec * 1000000000LL + now.tv_nsec;
    if (argc == 1) {
        printf("%lld\n", t);
        return 0;
    }
    printf("{\"t\":%lld,\"action\":\"%s\"", t, argv[1]);
    for (int i = 2; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        if (equals)
            printf(",\"%.*s\":\"%s\"", (int)(equals - argv[i]), argv[i], equals + 1);
    }
    printf("}\n");
    return 0;
}
