// aer DDDD:BB:DD.F corrected|uncorrected STATUS [COUNT [INTERVAL_MS]]: has the kernel's aer_inject module report PCIe
// errors on a function. STATUS is the hexadecimal content of the correctable or uncorrectable status register; whether
// an uncorrectable error is fatal is for the function's severity register to say. Prints a line of JSON per error.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// What /dev/aer_inject takes (Linux, drivers/pci/pcie/aer_inject.c).
struct error {
    uint8_t bus, device, function;
    uint32_t uncorrectable, correctable, header[4], domain;
};

int main(int argc, char **argv) {
    unsigned domain, bus, device, function;
    if (argc < 4 || sscanf(argv[1], "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) {
        fprintf(stderr, "usage: aer DDDD:BB:DD.F corrected|uncorrected STATUS [COUNT [INTERVAL_MS]]\n");
        return 2;
    }
    int corrected = !strcmp(argv[2], "corrected");
    uint32_t status = (uint32_t)strtoul(argv[3], NULL, 16);
    int count = argc > 4 ? atoi(argv[4]) : 1;
    long interval_ms = argc > 5 ? atol(argv[5]) : 0;
    struct error error = {.bus = (uint8_t)bus, .device = (uint8_t)device, .function = (uint8_t)function, .domain = domain};
    *(corrected ? &error.correctable : &error.uncorrectable) = status;
    int file = open("/dev/aer_inject", O_WRONLY);
    if (file < 0) {
        perror("/dev/aer_inject");
        return 1;
    }
    for (int i = 0; i < count; i++) {
        struct timespec now, pause = {interval_ms / 1000, interval_ms % 1000 * 1000000};
        if (i)
            nanosleep(&pause, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (write(file, &error, sizeof error) < 0) {
            perror("write");
            return 1;
        }
        printf("{\"t\":%lld,\"action\":\"aer\",\"pci\":\"%s\",\"severity\":\"%s\",\"status\":\"0x%x\"}\n",
               now.tv_sec * 1000000000LL + now.tv_nsec, argv[1], argv[2], status);
        fflush(stdout);
    }
    return 0;
}
