// cpu PID: prints the CPU time that all threads of a process took, also of those that have ended, in nanoseconds.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv) {
    clockid_t clock;
    struct timespec time;
    if (argc != 2 || clock_getcpuclockid(atoi(argv[1]), &clock) != 0 || clock_gettime(clock, &time) != 0)
        return 1;
    printf("%lld\n", time.tv_sec * 1000000000LL + time.tv_nsec);
    return 0;
}
