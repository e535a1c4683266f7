// link: -ldl
// contextless PROVIDER DEVICE_FILE: has a provider mapped and a device open, and no context of libibverbs in its memory: a
// process whose posts nobody can find the functions of. Sleeps until it is ended.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_GLOBAL), *provider = dlopen(argv[1], RTLD_NOW);
    if (!verbs || !provider || open(argv[2], O_RDWR) < 0) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    printf("ready\n");
    fflush(stdout);
    for (;;)
        pause();
}
